CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the audit is only added to'; END $$;

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
EXECUTE FUNCTION refuse_change();

CREATE TABLE message_words (
    number BIGINT NOT NULL REFERENCES message (number) ON DELETE CASCADE,
    piece BIGINT NOT NULL,
    words TSVECTOR NOT NULL,
    parts TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (number, piece)
);

CREATE INDEX message_by_words ON message_words USING gin (words) WITH (gin_pending_list_limit = 256);
