-- A database of version 18, the last one before the schema came from tables.py. Made by that version.
BEGIN TRANSACTION;
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
INSERT INTO "audit" VALUES('01session00000000000000root',1,'decision',1.79482258223708438871e+09,'01session00000000000000root','call-1','{"tool":"bash","outcome":"allowed"}','295a7d32ecccbc2e823dcecf1eb792993e0eecba42d6466a9281c304592b6a02','b6773f9038dfaeb4815f331aecbe1b73a71eaa1f6c87433d9cf9c423c2fc8aae');
CREATE TABLE audit_end (
    root_id TEXT NOT NULL PRIMARY KEY,
    number INTEGER NOT NULL,
    hash TEXT NOT NULL
);
INSERT INTO "audit_end" VALUES('01session00000000000000root',1,'b6773f9038dfaeb4815f331aecbe1b73a71eaa1f6c87433d9cf9c423c2fc8aae');
CREATE TABLE boundary (
    id TEXT NOT NULL PRIMARY KEY,
    parent_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    child_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
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
    cut_chars INTEGER NOT NULL,
    problem TEXT NOT NULL,
    coverage TEXT NOT NULL,
    undone_at FLOAT
, lineage TEXT NOT NULL DEFAULT '[0,0]', prepared BOOLEAN NOT NULL DEFAULT 0, moment TEXT NOT NULL DEFAULT '', waited_ms INTEGER NOT NULL DEFAULT 0);
INSERT INTO "boundary" VALUES('01boundary000000000000000b','01session00000000000000root','01session0000000000000child','auto',1700000004.0,'["01msg0000000000000000000a1","01msg0000000000000000000t1"]','model','openai/one','','',90000,4000,NULL,0.0,0.0,0,'','{"file":[3,2,3]}',NULL,'[3,3]',1,'todo',12);
CREATE TABLE chore (
    name TEXT NOT NULL PRIMARY KEY,
    state TEXT NOT NULL
);
CREATE TABLE conversation (
    root_id TEXT NOT NULL PRIMARY KEY,
    tip_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    cwd TEXT NOT NULL,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    updated_at FLOAT NOT NULL,
    is_open BOOLEAN NOT NULL,
    generations INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    imported TEXT NOT NULL
);
INSERT INTO "conversation" VALUES('01session00000000000000root','01session0000000000000child','/work/app','fix the parser','openai/one',1.7948225822568283081e+09,1,2,5,'');
CREATE TABLE cut (
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_id TEXT NOT NULL,
    head INTEGER NOT NULL,
    tail INTEGER NOT NULL, kind TEXT NOT NULL DEFAULT 'cut', made_after TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (session_id, message_id)
);
INSERT INTO "cut" VALUES('01session0000000000000child','01msg0000000000000000000t1',10,10,'cut','');
CREATE TABLE draft (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    role TEXT NOT NULL,
    parts TEXT NOT NULL,
    model TEXT NOT NULL,
    usage TEXT,
    finish TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    created_at FLOAT NOT NULL
);
CREATE TABLE file_change (
    number INTEGER NOT NULL PRIMARY KEY,
    root_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_number INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    source TEXT NOT NULL,
    path TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT,
    batch TEXT NOT NULL,
    reverses TEXT NOT NULL,
    machine TEXT NOT NULL,
    host TEXT NOT NULL,
    created_at FLOAT NOT NULL
);
CREATE TABLE import_record (
    root_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    source TEXT NOT NULL,
    foreign_id TEXT NOT NULL,
    file TEXT NOT NULL,
    tip_id TEXT NOT NULL,
    last_message TEXT NOT NULL,
    last_piece TEXT NOT NULL,
    open_calls TEXT NOT NULL,
    imported_at FLOAT NOT NULL
);
CREATE TABLE index_queue (
    number INTEGER NOT NULL PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE
);
CREATE TABLE lease (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    process INTEGER NOT NULL,
    started TEXT NOT NULL,
    host TEXT NOT NULL,
    heartbeat FLOAT NOT NULL
);
CREATE TABLE ledger (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    facts TEXT NOT NULL
);
INSERT INTO "ledger" VALUES('01session0000000000000child','{}');
CREATE TABLE listed_task (
    root_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
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
    PRIMARY KEY (root_id, number)
);
CREATE TABLE mark (
    number INTEGER NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    after TEXT NOT NULL,
    early BOOLEAN NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    hint TEXT NOT NULL,
    at FLOAT NOT NULL
);
INSERT INTO "mark" VALUES(1,'01session00000000000000root','01msg0000000000000000000a1',0,'info','interrupted','',1700000003.0);
CREATE TABLE message (
    number INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    role TEXT NOT NULL,
    parts TEXT NOT NULL,
    model TEXT NOT NULL,
    usage TEXT,
    finish TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    created_at FLOAT NOT NULL,
    UNIQUE (session_id, seq)
);
INSERT INTO "message" VALUES(1,'01msg0000000000000000000u1','01session00000000000000root',1,'user','[{"type":"text","text":"repair the zebra parser"}]','',NULL,'',0,1700000000.0);
INSERT INTO "message" VALUES(2,'01msg0000000000000000000a1','01session00000000000000root',2,'assistant','[{"type":"text","text":"I run the tests."},{"type":"tool_call","id":"call-1","name":"bash","args":{"command":"pytest -q"}}]','openai/one','{"input_tokens":1200,"output_tokens":40,"cache_read_tokens":0,"cache_write_tokens":0,"cost":0.01}','tool_calls',12,1700000001.0);
INSERT INTO "message" VALUES(3,'01msg0000000000000000000t1','01session00000000000000root',3,'tool','[{"type":"tool_result","call_id":"call-1","name":"bash","text":"2 failed","is_error":true}]','',NULL,'',0,1700000002.0);
INSERT INTO "message" VALUES(4,'01msg0000000000000000000s1','01session0000000000000child',1,'user','[{"type":"text","text":"The parser fails on zebra input."}]','',NULL,'',0,1700000004.0);
INSERT INTO "message" VALUES(5,'01msg0000000000000000000a2','01session0000000000000child',2,'assistant','[{"type":"text","text":"Done."}]','openai/one','{"input_tokens":4000,"output_tokens":20,"cache_read_tokens":100,"cache_write_tokens":0,"cost":0.02}','stop',3,1700000005.0);
INSERT INTO "message" VALUES(6,'01msg0000000000000000000k1','01session00000000000000task',1,'user','[{"type":"text","text":"look around"}]','',NULL,'',0,1700000005.0);
CREATE TABLE message_fact (
    number INTEGER NOT NULL PRIMARY KEY REFERENCES message (number) ON DELETE CASCADE,
    facts TEXT NOT NULL
);
CREATE TABLE pin (
    root_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    source TEXT NOT NULL,
    created_at FLOAT NOT NULL,
    PRIMARY KEY (root_id, number)
);
INSERT INTO "pin" VALUES('01session00000000000000root',1,'text','never touch the API','',1700000002.0);
CREATE TABLE session (
    id TEXT NOT NULL PRIMARY KEY,
    root_id TEXT NOT NULL,
    parent_id TEXT REFERENCES session (id) ON DELETE SET NULL,
    kind TEXT NOT NULL,
    generation INTEGER NOT NULL,
    title TEXT NOT NULL,
    cwd TEXT NOT NULL,
    model TEXT NOT NULL,
    compaction TEXT NOT NULL,
    system TEXT NOT NULL,
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
    grants TEXT NOT NULL
, imported TEXT NOT NULL DEFAULT '', breaker TEXT NOT NULL DEFAULT '{}', mode TEXT NOT NULL DEFAULT '', system_hash TEXT NOT NULL DEFAULT '');
INSERT INTO "session" VALUES('01session00000000000000root','01session00000000000000root',NULL,'root',0,'fix the parser','/work/app','openai/one','auto','',1700000000.0,1.79482258223619341847e+09,1700000004.0,'auto',3,1200,40,0,0,0.01,'[]','[]','','{}','','824d0a584eafbbedc8ea27c5c471312f21d1bbcdfe7787e4207d5fbc4bb56a7b');
INSERT INTO "session" VALUES('01session0000000000000child','01session00000000000000root','01session00000000000000root','continuation',1,'fix the parser','/work/app','openai/one','auto','',1700000004.0,1.7948225822568283081e+09,NULL,'',2,4000,20,100,0,0.02,'[]','[]','','{}','','824d0a584eafbbedc8ea27c5c471312f21d1bbcdfe7787e4207d5fbc4bb56a7b');
INSERT INTO "session" VALUES('01session00000000000000task','01session00000000000000root','01session0000000000000child','task',0,'fix the test','/work/app','openai/one','auto','',1700000005.0,1.79482258225771975517e+09,NULL,'',1,0,0,0,0,0.0,'[]','[]','','{}','','824d0a584eafbbedc8ea27c5c471312f21d1bbcdfe7787e4207d5fbc4bb56a7b');
CREATE TABLE system_prompt (
    hash TEXT NOT NULL PRIMARY KEY,
    text TEXT NOT NULL
);
INSERT INTO "system_prompt" VALUES('824d0a584eafbbedc8ea27c5c471312f21d1bbcdfe7787e4207d5fbc4bb56a7b','You are crushpy.');
CREATE TABLE task_list (
    root_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id) ON DELETE CASCADE,
    orders TEXT NOT NULL,
    parallel INTEGER NOT NULL,
    created_at FLOAT NOT NULL
);
CREATE TABLE task_result (
    id TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    raw TEXT NOT NULL,
    context_summary TEXT,
    summary_model TEXT NOT NULL,
    cost FLOAT NOT NULL,
    created_at FLOAT NOT NULL
);
INSERT INTO "task_result" VALUES('01result0000000000000000r1','01session00000000000000task','all is well',NULL,'',0.0,1700000006.0);
CREATE TABLE tool_run (
    number INTEGER NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES session (id) ON DELETE CASCADE,
    message_id TEXT NOT NULL,
    call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    args TEXT NOT NULL,
    started_at FLOAT NOT NULL,
    ended_at FLOAT,
    is_error BOOLEAN,
    result_id TEXT
);
INSERT INTO "tool_run" VALUES(1,'01session00000000000000root','01msg0000000000000000000a1','call-1','bash','{"command":"pytest -q"}',1.79482258223355460166e+09,1.79482258223619341847e+09,1,'01msg0000000000000000000t1');
CREATE INDEX session_by_root ON session (root_id);
CREATE INDEX session_by_parent ON session (parent_id);
CREATE INDEX session_by_folder ON session (cwd, updated_at);
CREATE INDEX tool_run_by_call ON tool_run (session_id, message_id, call_id);
CREATE INDEX tool_run_open ON tool_run (session_id, call_id) WHERE ended_at IS NULL;
CREATE INDEX boundary_by_parent ON boundary (parent_id);
CREATE INDEX boundary_by_child ON boundary (child_id);
CREATE INDEX task_result_by_session ON task_result (session_id);
CREATE INDEX import_by_source ON import_record (source, foreign_id)
;
CREATE INDEX conversation_by_folder ON conversation (cwd, updated_at);
CREATE INDEX conversation_by_time ON conversation (updated_at);
CREATE INDEX conversation_by_tip ON conversation (tip_id);
CREATE INDEX session_deleted ON session (kind) WHERE kind = 'deleted'
;
CREATE INDEX file_change_by_root ON file_change (root_id);
CREATE INDEX file_change_by_session ON file_change (session_id);
CREATE INDEX file_change_by_batch ON file_change (batch)
;
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;
CREATE INDEX mark_by_session ON mark (session_id);
CREATE INDEX mark_by_message ON mark (after)
;
CREATE INDEX session_by_prompt ON session (system_hash) WHERE system_hash != '';
CREATE VIRTUAL TABLE message_words USING fts5 (text, content = '', tokenize = 'unicode61 remove_diacritics 0');
CREATE VIRTUAL TABLE message_parts USING fts5 (text, content = '', tokenize = 'trigram', detail = none);
COMMIT;
PRAGMA user_version = 18;
PRAGMA application_id = 0x63727079;
