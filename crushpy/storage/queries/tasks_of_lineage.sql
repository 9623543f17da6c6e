WITH RECURSIVE reach (id, last) AS MATERIALIZED ({pairs}),
task (id) AS (
    SELECT session.id FROM session JOIN reach ON session.parent_id = reach.id
    WHERE session.kind IN ('task', 'branch')
    AND coalesce((SELECT min(number) FROM message WHERE session_id = session.id), 0) <= reach.last
    UNION SELECT session.id FROM session JOIN task ON session.parent_id = task.id
)
SELECT id FROM task
