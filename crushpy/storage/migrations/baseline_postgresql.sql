CREATE SEQUENCE lease_token;

CREATE TABLE audit (
	root_id TEXT COLLATE "C" NOT NULL,
	number BIGINT NOT NULL,
	kind TEXT COLLATE "C" NOT NULL,
	at DOUBLE PRECISION NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	call_id TEXT COLLATE "C" NOT NULL,
	body TEXT COLLATE "C" NOT NULL,
	previous TEXT COLLATE "C" NOT NULL,
	hash TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (root_id, number)
);

CREATE TABLE audit_end (
	root_id TEXT COLLATE "C" NOT NULL,
	number BIGINT NOT NULL,
	hash TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (root_id)
);

CREATE TABLE maintenance (
	name TEXT COLLATE "C" NOT NULL,
	state TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE session (
	id TEXT COLLATE "C" NOT NULL,
	root_id TEXT COLLATE "C" NOT NULL,
	parent_id TEXT COLLATE "C",
	kind TEXT COLLATE "C" NOT NULL,
	generation BIGINT NOT NULL,
	title TEXT COLLATE "C" NOT NULL,
	cwd TEXT COLLATE "C" NOT NULL,
	model TEXT COLLATE "C" NOT NULL,
	compaction TEXT COLLATE "C" NOT NULL,
	system TEXT COLLATE "C" DEFAULT '' NOT NULL,
	created_at DOUBLE PRECISION NOT NULL,
	updated_at DOUBLE PRECISION NOT NULL,
	ended_at DOUBLE PRECISION,
	end_reason TEXT COLLATE "C" NOT NULL,
	message_count BIGINT NOT NULL,
	input_tokens BIGINT NOT NULL,
	output_tokens BIGINT NOT NULL,
	cache_read_tokens BIGINT NOT NULL,
	cache_write_tokens BIGINT NOT NULL,
	cost DOUBLE PRECISION NOT NULL,
	todos TEXT COLLATE "C" NOT NULL,
	grants TEXT COLLATE "C" NOT NULL,
	imported TEXT COLLATE "C" DEFAULT '' NOT NULL,
	breaker TEXT COLLATE "C" DEFAULT '{}' NOT NULL,
	mode TEXT COLLATE "C" DEFAULT '' NOT NULL,
	system_hash TEXT COLLATE "C" DEFAULT '' NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(parent_id) REFERENCES session (id) ON DELETE SET NULL
);

CREATE INDEX session_by_folder ON session (cwd, updated_at);

CREATE INDEX session_by_parent ON session (parent_id);

CREATE INDEX session_by_prompt ON session (system_hash) WHERE system_hash != '';

CREATE INDEX session_by_root ON session (root_id);

CREATE INDEX session_deleted ON session (kind) WHERE kind = 'deleted';

CREATE TABLE system_prompt (
	hash TEXT COLLATE "C" NOT NULL,
	text TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (hash)
);

CREATE TABLE writer (
	name TEXT COLLATE "C" NOT NULL,
	number BIGINT NOT NULL,
	at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE boundary (
	id TEXT COLLATE "C" NOT NULL,
	parent_id TEXT COLLATE "C" NOT NULL,
	child_id TEXT COLLATE "C" NOT NULL,
	trigger TEXT COLLATE "C" NOT NULL,
	created_at DOUBLE PRECISION NOT NULL,
	tail TEXT COLLATE "C" NOT NULL,
	summary_source TEXT COLLATE "C" NOT NULL,
	summary_model TEXT COLLATE "C" NOT NULL,
	template_name TEXT COLLATE "C" NOT NULL,
	template_hash TEXT COLLATE "C" NOT NULL,
	tokens_before BIGINT NOT NULL,
	tokens_after BIGINT NOT NULL,
	reported_after BIGINT,
	cost DOUBLE PRECISION NOT NULL,
	seconds DOUBLE PRECISION NOT NULL,
	truncated_chars BIGINT NOT NULL,
	problem TEXT COLLATE "C" NOT NULL,
	coverage TEXT COLLATE "C" NOT NULL,
	undone_at DOUBLE PRECISION,
	lineage TEXT COLLATE "C" DEFAULT '[0,0]' NOT NULL,
	prepared BOOLEAN DEFAULT false NOT NULL,
	moment TEXT COLLATE "C" DEFAULT '' NOT NULL,
	waited_ms BIGINT DEFAULT 0 NOT NULL,
	threshold DOUBLE PRECISION DEFAULT 0.0 NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(parent_id) REFERENCES session (id) ON DELETE CASCADE,
	FOREIGN KEY(child_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX boundary_by_child ON boundary (child_id);

CREATE INDEX boundary_by_parent ON boundary (parent_id);

CREATE TABLE conversation (
	root_id TEXT COLLATE "C" NOT NULL,
	tip_id TEXT COLLATE "C" NOT NULL,
	cwd TEXT COLLATE "C" NOT NULL,
	title TEXT COLLATE "C" NOT NULL,
	model TEXT COLLATE "C" NOT NULL,
	updated_at DOUBLE PRECISION NOT NULL,
	is_open BOOLEAN NOT NULL,
	generations BIGINT NOT NULL,
	messages BIGINT NOT NULL,
	imported TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (root_id),
	FOREIGN KEY(tip_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX conversation_by_folder ON conversation (cwd, updated_at);

CREATE INDEX conversation_by_time ON conversation (updated_at);

CREATE INDEX conversation_by_tip ON conversation (tip_id);

CREATE TABLE draft (
	session_id TEXT COLLATE "C" NOT NULL,
	id TEXT COLLATE "C" NOT NULL,
	role TEXT COLLATE "C" NOT NULL,
	parts TEXT COLLATE "C" NOT NULL,
	model TEXT COLLATE "C" NOT NULL,
	usage TEXT COLLATE "C",
	finish TEXT COLLATE "C" NOT NULL,
	tokens BIGINT NOT NULL,
	created_at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (session_id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE file_change (
	number BIGSERIAL NOT NULL,
	root_id TEXT COLLATE "C" NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	message_number BIGINT NOT NULL,
	call_id TEXT COLLATE "C" NOT NULL,
	source TEXT COLLATE "C" NOT NULL,
	path TEXT COLLATE "C" NOT NULL,
	before TEXT COLLATE "C" NOT NULL,
	after TEXT COLLATE "C",
	batch TEXT COLLATE "C" NOT NULL,
	reverses TEXT COLLATE "C" NOT NULL,
	machine TEXT COLLATE "C" NOT NULL,
	host TEXT COLLATE "C" NOT NULL,
	created_at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (number),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE,
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX file_change_by_batch ON file_change (batch);

CREATE INDEX file_change_by_root ON file_change (root_id);

CREATE INDEX file_change_by_session ON file_change (session_id);

CREATE TABLE import_record (
	root_id TEXT COLLATE "C" NOT NULL,
	source TEXT COLLATE "C" NOT NULL,
	foreign_id TEXT COLLATE "C" NOT NULL,
	file TEXT COLLATE "C" NOT NULL,
	tip_id TEXT COLLATE "C" NOT NULL,
	last_message TEXT COLLATE "C" NOT NULL,
	last_piece TEXT COLLATE "C" NOT NULL,
	open_calls TEXT COLLATE "C" NOT NULL,
	imported_at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (root_id),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX import_by_source ON import_record (source, foreign_id);

CREATE TABLE lease (
	session_id TEXT COLLATE "C" NOT NULL,
	process BIGINT NOT NULL,
	started TEXT COLLATE "C" NOT NULL,
	host TEXT COLLATE "C" NOT NULL,
	place TEXT COLLATE "C" DEFAULT '' NOT NULL,
	heartbeat DOUBLE PRECISION NOT NULL,
	token BIGINT DEFAULT 0 NOT NULL,
	PRIMARY KEY (session_id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE ledger (
	session_id TEXT COLLATE "C" NOT NULL,
	facts TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (session_id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE listed_task (
	root_id TEXT COLLATE "C" NOT NULL,
	number BIGINT NOT NULL,
	name TEXT COLLATE "C" NOT NULL,
	state TEXT COLLATE "C" NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	result_id TEXT COLLATE "C" NOT NULL,
	branch TEXT COLLATE "C" NOT NULL,
	changes TEXT COLLATE "C" NOT NULL,
	error TEXT COLLATE "C" NOT NULL,
	steps BIGINT NOT NULL,
	tokens BIGINT NOT NULL,
	cost DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (root_id, number),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE message (
	number BIGSERIAL NOT NULL,
	id TEXT COLLATE "C" NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	seq BIGINT NOT NULL,
	role TEXT COLLATE "C" NOT NULL,
	parts TEXT COLLATE "C" NOT NULL,
	model TEXT COLLATE "C" NOT NULL,
	usage TEXT COLLATE "C",
	finish TEXT COLLATE "C" NOT NULL,
	tokens BIGINT NOT NULL,
	created_at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (number),
	UNIQUE (session_id, seq),
	UNIQUE (id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE message_override (
	session_id TEXT COLLATE "C" NOT NULL,
	message_id TEXT COLLATE "C" NOT NULL,
	head BIGINT NOT NULL,
	tail BIGINT NOT NULL,
	kind TEXT COLLATE "C" DEFAULT 'cut' NOT NULL,
	made_after TEXT COLLATE "C" DEFAULT '' NOT NULL,
	PRIMARY KEY (session_id, message_id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE output (
	root_id TEXT COLLATE "C" NOT NULL,
	name TEXT COLLATE "C" NOT NULL,
	piece BIGINT NOT NULL,
	data BYTEA NOT NULL,
	PRIMARY KEY (root_id, name, piece),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE pin (
	root_id TEXT COLLATE "C" NOT NULL,
	number BIGINT NOT NULL,
	kind TEXT COLLATE "C" NOT NULL,
	text TEXT COLLATE "C" NOT NULL,
	source TEXT COLLATE "C" NOT NULL,
	created_at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (root_id, number),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE task_list (
	root_id TEXT COLLATE "C" NOT NULL,
	orders TEXT COLLATE "C" NOT NULL,
	parallel BIGINT NOT NULL,
	created_at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (root_id),
	FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE task_result (
	id TEXT COLLATE "C" NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	raw TEXT COLLATE "C" NOT NULL,
	context_summary TEXT COLLATE "C",
	summary_model TEXT COLLATE "C" NOT NULL,
	cost DOUBLE PRECISION NOT NULL,
	created_at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX task_result_by_session ON task_result (session_id);

CREATE TABLE timeline_note (
	number BIGSERIAL NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	after TEXT COLLATE "C" NOT NULL,
	early BOOLEAN NOT NULL,
	kind TEXT COLLATE "C" NOT NULL,
	text TEXT COLLATE "C" NOT NULL,
	hint TEXT COLLATE "C" NOT NULL,
	at DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (number),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX timeline_note_by_message ON timeline_note (after);

CREATE INDEX timeline_note_by_session ON timeline_note (session_id);

CREATE TABLE tool_run (
	number BIGSERIAL NOT NULL,
	session_id TEXT COLLATE "C" NOT NULL,
	message_id TEXT COLLATE "C" NOT NULL,
	call_id TEXT COLLATE "C" NOT NULL,
	name TEXT COLLATE "C" NOT NULL,
	args TEXT COLLATE "C" NOT NULL,
	started_at DOUBLE PRECISION NOT NULL,
	ended_at DOUBLE PRECISION,
	is_error BOOLEAN,
	result_id TEXT COLLATE "C",
	PRIMARY KEY (number),
	FOREIGN KEY(session_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE INDEX tool_run_by_call ON tool_run (session_id, message_id, call_id);

CREATE INDEX tool_run_open ON tool_run (session_id, call_id) WHERE ended_at IS NULL;

CREATE TABLE index_queue (
	number BIGINT NOT NULL,
	PRIMARY KEY (number),
	FOREIGN KEY(number) REFERENCES message (number) ON DELETE CASCADE
);

CREATE TABLE message_fact (
	number BIGINT NOT NULL,
	facts TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (number),
	FOREIGN KEY(number) REFERENCES message (number) ON DELETE CASCADE
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the audit is only added to'; END $$;

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON audit EXECUTE FUNCTION refuse_change();

CREATE TABLE message_words (number BIGINT NOT NULL REFERENCES message (number) ON DELETE CASCADE, piece BIGINT NOT NULL, words TSVECTOR NOT NULL, parts TEXT COLLATE "C" NOT NULL, PRIMARY KEY (number, piece));

CREATE INDEX message_by_words ON message_words USING gin (words) WITH (gin_pending_list_limit = 256)
