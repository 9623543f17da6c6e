CREATE TABLE fleet_task (
    root_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    token BIGINT DEFAULT 0 NOT NULL,
    worker TEXT COLLATE "C" DEFAULT '' NOT NULL,
    deaths TEXT COLLATE "C" DEFAULT '[]' NOT NULL,
    queued BOOLEAN DEFAULT false NOT NULL,
    stuck TEXT COLLATE "C" DEFAULT '' NOT NULL,
    stuck_since DOUBLE PRECISION DEFAULT 0.0 NOT NULL,
    line TEXT COLLATE "C" DEFAULT '' NOT NULL,
    question TEXT COLLATE "C" DEFAULT '' NOT NULL,
    answer TEXT COLLATE "C" DEFAULT '' NOT NULL,
    inbox TEXT COLLATE "C" DEFAULT '[]' NOT NULL,
    stopped BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (root_id, number),
    FOREIGN KEY(root_id) REFERENCES session (id) ON DELETE CASCADE
);

CREATE TABLE fleet_worker (
    name TEXT COLLATE "C" NOT NULL,
    host TEXT COLLATE "C" NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    labels TEXT COLLATE "C" NOT NULL,
    slots BIGINT NOT NULL,
    lacks TEXT COLLATE "C" DEFAULT '[]' NOT NULL,
    heartbeat DOUBLE PRECISION NOT NULL,
    draining BOOLEAN DEFAULT false NOT NULL,
    PRIMARY KEY (name)
)
