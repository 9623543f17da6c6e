CREATE TABLE audit (
	root_id TEXT NOT NULL,
	number INTEGER NOT NULL,
	kind TEXT NOT NULL,
	at FLOAT NOT NULL,
	session_id TEXT NOT NULL,
	call_id TEXT NOT NULL,
	body TEXT NOT NULL,
	previous TEXT NOT NULL,
	hash TEXT NOT NULL,
	PRIMARY KEY (root_id, number)
);

CREATE TABLE audit_end (
	root_id TEXT NOT NULL,
	number INTEGER NOT NULL,
	hash TEXT NOT NULL,
	PRIMARY KEY (root_id)
);

CREATE TABLE maintenance (
	name TEXT NOT NULL,
	state TEXT NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE session (
	id TEXT NOT NULL,
	root_id TEXT NOT NULL,
	parent_id TEXT,
	kind TEXT NOT NULL,
	generation INTEGER NOT NULL,
	title TEXT NOT NULL,
	cwd TEXT NOT NULL,
	model TEXT NOT NULL,
	compaction TEXT NOT NULL,
	system TEXT DEFAULT '' NOT NULL,
	created_at FLOAT NOT NULL,
	updated_at FLOAT NOT NULL,
	ended_at FLOAT,
	end_reason TEXT NOT NULL,
	message_count INTEGER NOT NULL,
	input_tokens INTEGER NOT NULL,
	output_tokens INTEGER NOT NULL,
	cache_read_tokens INTEGER NOT NULL,
	cache_write_tokens INTEGER NOT NULL,
	cost FLOAT NOT NULL,
	todos TEXT NOT NULL,
	grants TEXT NOT NULL,
	imported TEXT DEFAULT '' NOT NULL,
	breaker TEXT DEFAULT '{}' NOT NULL,
	mode TEXT DEFAULT '' NOT NULL,
	system_hash TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(parent_id) REFERENCES session (id) ON DELETE SET NULL
);

CREATE INDEX session_by_folder ON session (cwd, updated_at);

CREATE INDEX session_by_parent ON session (parent_id);

CREATE INDEX session_by_prompt ON session (system_hash) WHERE system_hash != '';

CREATE INDEX session_by_root ON session (root_id);

CREATE INDEX session_deleted ON session (kind) WHERE kind = 'deleted';

CREATE TABLE system_prompt (
	hash TEXT NOT NULL,
	text TEXT NOT NULL,
	PRIMARY KEY (hash)
);

CREATE TABLE boundary (
	id TEXT NOT NULL,
	parent_id TEXT NOT NULL,
	child_id TEXT NOT NULL,
	"trigger" TEXT NOT NULL,
	created_at FLOAT NOT NULL,
	tail TEXT NOT NULL,
	summary_source TEXT NOT NULL,
	summary_model TEXT NOT NULL,
	template_name TEXT NOT NULL,
	template_hash TEXT NOT NULL,
	tokens_before INTEGER NOT NULL,
	tokens_after INTEGER NOT NULL,
	reported_after INTEGER,
	cost FLOAT NOT NULL,
	seconds FLOAT NOT NULL,
	truncated_chars INTEGER NOT NULL,
	problem TEXT NOT NULL,
	coverage TEXT NOT NULL,
	undone_at FLOAT,
	lineage TEXT DEFAULT '[0,0]' NOT NULL,
	prepared BOOLEAN DEFAULT false NOT NULL,
	moment TEXT DEFAULT '' NOT NULL,
	waited_ms INTEGER DEFAULT 0 NOT NULL,
	threshold FLOAT DEFAULT 0.0 NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(parent_id) REFERENCES session (id) ON DELETE CASCADE,
	FOREIGN KEY(child_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX boundary_by_child ON boundary (child_id);

CREATE INDEX boundary_by_parent ON boundary (parent_id);

CREATE TABLE conversation (
	root_id TEXT NOT NULL,
	tip_id TEXT NOT NULL,
	cwd TEXT NOT NULL,
	title TEXT NOT NULL,
	model TEXT NOT NULL,
	updated_at FLOAT NOT NULL,
	is_open BOOLEAN NOT NULL,
	generations INTEGER NOT NULL,
	messages INTEGER NOT NULL,
	imported TEXT NOT NULL,
	PRIMARY KEY (root_id),
	FOREIGN KEY(tip_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX conversation_by_folder ON conversation (cwd, updated_at);

CREATE INDEX conversation_by_time ON conversation (updated_at);

CREATE INDEX conversation_by_tip ON conversation (tip_id);

CREATE TABLE draft (
	session_id TEXT NOT NULL,
	id TEXT NOT NULL,
	role TEXT NOT NULL,
	parts TEXT NOT NULL,
	model TEXT NOT NULL,
	usage TEXT,
	finish TEXT NOT NULL,
	tokens INTEGER NOT NULL,
	created_at FLOAT NOT NULL,
	PRIMARY KEY (session_id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE file_change (
	number INTEGER NOT NULL,
	root_id TEXT NOT NULL,
	session_id TEXT NOT NULL,
	message_number INTEGER NOT NULL,
	call_id TEXT NOT NULL,
	source TEXT NOT NULL,
	path TEXT NOT NULL,
	"before" TEXT NOT NULL,
	"after" TEXT,
	batch TEXT NOT NULL,
	reverses TEXT NOT NULL,
	machine TEXT NOT NULL,
	host TEXT NOT NULL,
	created_at FLOAT NOT NULL,
	PRIMARY KEY (number),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE,
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX file_change_by_batch ON file_change (batch);

CREATE INDEX file_change_by_root ON file_change (root_id);

CREATE INDEX file_change_by_session ON file_change (session_id);

CREATE TABLE import_record (
	root_id TEXT NOT NULL,
	source TEXT NOT NULL,
	foreign_id TEXT NOT NULL,
	file TEXT NOT NULL,
	tip_id TEXT NOT NULL,
	last_message TEXT NOT NULL,
	last_piece TEXT NOT NULL,
	open_calls TEXT NOT NULL,
	imported_at FLOAT NOT NULL,
	PRIMARY KEY (root_id),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX import_by_source ON import_record (source, foreign_id);

CREATE TABLE lease (
	session_id TEXT NOT NULL,
	process INTEGER NOT NULL,
	started TEXT NOT NULL,
	host TEXT NOT NULL,
	place TEXT DEFAULT '' NOT NULL,
	heartbeat FLOAT NOT NULL,
	token INTEGER DEFAULT 0 NOT NULL,
	PRIMARY KEY (session_id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE ledger (
	session_id TEXT NOT NULL,
	facts TEXT NOT NULL,
	PRIMARY KEY (session_id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE listed_task (
	root_id TEXT NOT NULL,
	number INTEGER NOT NULL,
	name TEXT NOT NULL,
	state TEXT NOT NULL,
	session_id TEXT NOT NULL,
	result_id TEXT NOT NULL,
	branch TEXT NOT NULL,
	changes TEXT NOT NULL,
	error TEXT NOT NULL,
	steps INTEGER NOT NULL,
	tokens INTEGER NOT NULL,
	cost FLOAT NOT NULL,
	PRIMARY KEY (root_id, number),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE message (
	number INTEGER NOT NULL,
	id TEXT NOT NULL,
	session_id TEXT NOT NULL,
	seq INTEGER NOT NULL,
	role TEXT NOT NULL,
	parts TEXT NOT NULL,
	model TEXT NOT NULL,
	usage TEXT,
	finish TEXT NOT NULL,
	tokens INTEGER NOT NULL,
	created_at FLOAT NOT NULL,
	PRIMARY KEY (number),
	UNIQUE (session_id, seq),
	UNIQUE (id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE message_override (
	session_id TEXT NOT NULL,
	message_id TEXT NOT NULL,
	head INTEGER NOT NULL,
	tail INTEGER NOT NULL,
	kind TEXT DEFAULT 'cut' NOT NULL,
	made_after TEXT DEFAULT '' NOT NULL,
	PRIMARY KEY (session_id, message_id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE pin (
	root_id TEXT NOT NULL,
	number INTEGER NOT NULL,
	kind TEXT NOT NULL,
	text TEXT NOT NULL,
	source TEXT NOT NULL,
	created_at FLOAT NOT NULL,
	PRIMARY KEY (root_id, number),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE task_list (
	root_id TEXT NOT NULL,
	orders TEXT NOT NULL,
	parallel INTEGER NOT NULL,
	created_at FLOAT NOT NULL,
	PRIMARY KEY (root_id),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE task_result (
	id TEXT NOT NULL,
	session_id TEXT NOT NULL,
	raw TEXT NOT NULL,
	context_summary TEXT,
	summary_model TEXT NOT NULL,
	cost FLOAT NOT NULL,
	created_at FLOAT NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX task_result_by_session ON task_result (session_id);

CREATE TABLE timeline_note (
	number INTEGER NOT NULL,
	session_id TEXT NOT NULL,
	"after" TEXT NOT NULL,
	early BOOLEAN NOT NULL,
	kind TEXT NOT NULL,
	text TEXT NOT NULL,
	hint TEXT NOT NULL,
	at FLOAT NOT NULL,
	PRIMARY KEY (number),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX timeline_note_by_message ON timeline_note ("after");

CREATE INDEX timeline_note_by_session ON timeline_note (session_id);

CREATE TABLE tool_run (
	number INTEGER NOT NULL,
	session_id TEXT NOT NULL,
	message_id TEXT NOT NULL,
	call_id TEXT NOT NULL,
	name TEXT NOT NULL,
	args TEXT NOT NULL,
	started_at FLOAT NOT NULL,
	ended_at FLOAT,
	is_error BOOLEAN,
	result_id TEXT,
	PRIMARY KEY (number),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX tool_run_by_call ON tool_run (session_id, message_id, call_id);

CREATE INDEX tool_run_open ON tool_run (session_id, call_id) WHERE ended_at IS NULL;

CREATE TABLE index_queue (
	number INTEGER NOT NULL,
	PRIMARY KEY (number),
	FOREIGN KEY(number) REFERENCES message (number) ON DELETE CASCADE
);

CREATE TABLE message_fact (
	number INTEGER NOT NULL,
	facts TEXT NOT NULL,
	PRIMARY KEY (number),
	FOREIGN KEY(number) REFERENCES message (number) ON DELETE CASCADE
);

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;

CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;

CREATE VIRTUAL TABLE message_words USING fts5 (text, content = '', tokenize = 'unicode61 remove_diacritics 0');

CREATE VIRTUAL TABLE message_parts USING fts5 (text, content = '', tokenize = 'trigram', detail = none)
