-- What crushpy asks a server about itself and its tables; it changes nothing.
SELECT current_setting('server_version') AS version, current_user::text AS role,
    CASE WHEN to_regnamespace('crushpy') IS NULL THEN has_database_privilege(current_database(), 'CREATE')
        ELSE has_schema_privilege('crushpy', 'CREATE') END AS may_create,
    pg_is_in_recovery() OR current_setting('transaction_read_only')::bool AS read_only,
    coalesce((SELECT bool_and(has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
        AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) FROM pg_class
        WHERE relkind = 'r' AND relnamespace = to_regnamespace('crushpy')), true) AS may_write,
    to_regnamespace('crushpy') IS NOT NULL AS has_schema,
    EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('crushpy')) AS has_tables,
    to_regclass('crushpy.schema_version') IS NOT NULL AS is_ours,
    to_regclass('crushpy.migration') IS NOT NULL AS is_old,
    EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_trgm') AS has_trigrams,
    to_regclass('crushpy.message_by_parts') IS NOT NULL AS is_indexed
