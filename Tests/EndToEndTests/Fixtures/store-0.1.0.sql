-- The store of holdfastd 0.1.0, as it was killed: five messages in the outbox of the session main, three in the inbox of
-- its consumer billing, a publication, and the history of one connection. It is never changed.
PRAGMA auto_vacuum=2;
PRAGMA user_version=8;
BEGIN TRANSACTION;
CREATE TABLE chosen_room (
    session INTEGER PRIMARY KEY,
    room TEXT NOT NULL,
    configured TEXT NOT NULL,
    boot_id TEXT NOT NULL
) STRICT;
CREATE TABLE consumer (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- As it was given: it may be relative to the room.
    filter TEXT NOT NULL,
    qos INTEGER NOT NULL,
    -- Messages up to this one may have been given to a program.
    given_through INTEGER NOT NULL DEFAULT 0,
    UNIQUE (session, name)
) STRICT;
INSERT INTO "consumer" VALUES(1,1,'billing','orders/#',1,1);
CREATE TABLE history (
    id INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    session TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state TEXT NOT NULL,
    phase TEXT,
    mode TEXT,
    reason_code TEXT NOT NULL,
    message TEXT NOT NULL,
    server_code INTEGER,
    -- In milliseconds.
    outage INTEGER
) STRICT;
INSERT INTO "history" VALUES(1,1795336557140,'main','disconnected','connecting',NULL,NULL,'autoconnect','the session connects by itself when the daemon starts',NULL,NULL);
INSERT INTO "history" VALUES(2,1795336557196,'main','connecting','connected',NULL,NULL,'autoconnect','the session connects by itself when the daemon starts',NULL,NULL);
INSERT INTO "history" VALUES(3,1795336566980,'main','connected','reconnecting',NULL,'quick','server-closed','the server closed the connection without saying why',NULL,NULL);
CREATE TABLE home (
    session INTEGER NOT NULL,
    -- 0: where it is; then those with an old copy.
    position INTEGER NOT NULL,
    address TEXT NOT NULL,
    PRIMARY KEY (session, position)
) STRICT, WITHOUT ROWID;
INSERT INTO "home" VALUES(1,0,'mqtt://localhost:1883');
CREATE TABLE in_flight (
    key INTEGER PRIMARY KEY,
    packet_id INTEGER NOT NULL,
    released INTEGER NOT NULL
) STRICT;
CREATE TABLE inbound (
    session INTEGER NOT NULL,
    packet_id INTEGER NOT NULL,
    PRIMARY KEY (session, packet_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE inbox (
    key INTEGER PRIMARY KEY,
    received_at INTEGER NOT NULL,
    size INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    duplicate INTEGER NOT NULL,
    topic TEXT NOT NULL,
    properties BLOB,
    payload BLOB NOT NULL
) STRICT;
INSERT INTO "inbox" VALUES(281474976710658,1795336561141,9,1,0,0,'orders/1',X'0108000000040D2A9325',X'61');
INSERT INTO "inbox" VALUES(281474976710659,1795336562172,9,1,0,0,'orders/2',X'0108000000040D2A9325',X'62');
INSERT INTO "inbox" VALUES(281474976710660,1795336563100,9,1,0,0,'orders/3',X'0108000000040D2A9325',X'63');
CREATE TABLE message (
    key INTEGER PRIMARY KEY,
    accepted_at INTEGER NOT NULL,
    expires_at INTEGER,
    size INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    retain INTEGER NOT NULL,
    topic TEXT NOT NULL,
    properties BLOB,
    payload BLOB NOT NULL
) STRICT;
INSERT INTO "message" VALUES(281474976710661,1795336569529,NULL,16,2,0,'plant/7/reading',NULL,X'31');
INSERT INTO "message" VALUES(281474976710662,1795336570104,NULL,16,1,0,'plant/7/reading',NULL,X'32');
INSERT INTO "message" VALUES(281474976710663,1795336570581,NULL,16,2,0,'plant/7/reading',NULL,X'33');
INSERT INTO "message" VALUES(281474976710664,1795336571189,NULL,16,1,0,'plant/7/reading',NULL,X'34');
INSERT INTO "message" VALUES(281474976710665,1795336571560,NULL,16,2,0,'plant/7/reading',NULL,X'35');
CREATE TABLE presence (
    session INTEGER NOT NULL,
    since INTEGER NOT NULL,
    PRIMARY KEY (session, since)
) STRICT, WITHOUT ROWID;
CREATE TABLE publication (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    -- As it was given: it may be relative to the room.
    topic TEXT NOT NULL,
    qos INTEGER NOT NULL,
    properties BLOB,
    payload BLOB NOT NULL,
    since INTEGER NOT NULL,
    UNIQUE (session, topic)
) STRICT;
INSERT INTO "publication" VALUES(1,1,'plant/7/state',1,NULL,X'6F70656E',1795336563753);
CREATE TABLE quarantine (
    key INTEGER PRIMARY KEY,
    reason_code INTEGER NOT NULL,
    message TEXT NOT NULL
) STRICT;
CREATE TABLE retained (
    session INTEGER NOT NULL,
    topic TEXT NOT NULL,
    PRIMARY KEY (session, topic)
) STRICT, WITHOUT ROWID;
INSERT INTO "retained" VALUES(1,'plant/7/state');
CREATE TABLE retired (
    session INTEGER NOT NULL,
    packet_id INTEGER NOT NULL,
    PRIMARY KEY (session, packet_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    established INTEGER NOT NULL DEFAULT 0,
    assigned_client_id TEXT,
    next_sequence INTEGER NOT NULL DEFAULT 1
, next_inbox_sequence INTEGER NOT NULL DEFAULT 1) STRICT;
INSERT INTO "session" VALUES(1,'main',1,NULL,10,5);
CREATE TABLE subscription (
    session INTEGER NOT NULL,
    filter TEXT NOT NULL,
    PRIMARY KEY (session, filter)
) STRICT, WITHOUT ROWID;
INSERT INTO "subscription" VALUES(1,'orders/#');
CREATE TABLE verdict (
    session INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    reason_code TEXT NOT NULL,
    message TEXT NOT NULL,
    server_code INTEGER,
    boot_id TEXT NOT NULL,
    since INTEGER NOT NULL
, configuration TEXT, credential TEXT) STRICT;
CREATE VIEW outbox AS
    SELECT session.name AS session, message.key & 0xFFFFFFFFFFFF AS sequence,
        CASE
            WHEN quarantine.key IS NOT NULL THEN 'quarantined'
            WHEN in_flight.key IS NULL THEN 'queued'
            WHEN in_flight.released THEN 'released'
            ELSE 'in flight'
        END AS state,
        datetime(message.accepted_at / 1000, 'unixepoch') AS accepted,
        message.topic, message.qos, message.retain, length(message.payload) AS payload_bytes,
        in_flight.packet_id, quarantine.reason_code, quarantine.message AS reason
    FROM message
        JOIN session ON session.id = message.key >> 48
        LEFT JOIN in_flight USING (key)
        LEFT JOIN quarantine USING (key);
COMMIT;
