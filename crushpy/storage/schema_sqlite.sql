CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;

CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is only added to'); END;

CREATE VIRTUAL TABLE message_words USING fts5 (text, content = '', tokenize = 'unicode61 remove_diacritics 0');

CREATE VIRTUAL TABLE message_parts USING fts5 (text, content = '', tokenize = 'trigram', detail = none);
