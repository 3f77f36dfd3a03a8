internal import Glibc

/// The versions of the file's layout. A version is never changed after its release; the next one is appended, and changes
/// the schema, by which a later version is told from a damaged number.
///
/// A message is written once and deleted once, however large it is: what happens to it in between is a small row in
/// `in_flight` or `quarantine` with the same key. A message with neither is queued. A large message for several durable
/// consumers is written once as well: each of them has a small row that refers to it.
enum Schema {
    /// The version of the first release.
    private static let first = 8
    /// The statements that make a file of that version, then those that lead from one version to the next.
    static let migrations: [String] = [version8, version9]

    /// The version that a file has after these migrations.
    static func version(after migrations: [String]) -> Int { versions(after: migrations).upperBound }

    /// All versions that lead there.
    static func versions(after migrations: [String]) -> ClosedRange<Int> { first...(first + migrations.count - 1) }

    /// The name of a copy that is being made.
    private static let partName = DurableStore.fileName + ".version.part"

    /// Removes the copy that a daemon was making when it was ended.
    static func removePart(in directory: borrowing StateDirectory) {
        for suffix in ["", "-journal"] { unlink("\(directory.path)/\(partName)\(suffix)") }
    }

    private static let version8 = """
        CREATE TABLE session (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            established INTEGER NOT NULL DEFAULT 0,
            assigned_client_id TEXT,
            next_sequence INTEGER NOT NULL DEFAULT 1,
            next_inbox_sequence INTEGER NOT NULL DEFAULT 1
        ) STRICT;
        -- key: session.id * 2^48 + sequence, so that a session's messages lie next to each other in order.
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
        CREATE TABLE in_flight (
            key INTEGER PRIMARY KEY,
            packet_id INTEGER NOT NULL,
            released INTEGER NOT NULL
        ) STRICT;
        CREATE TABLE quarantine (
            key INTEGER PRIMARY KEY,
            reason_code INTEGER NOT NULL,
            message TEXT NOT NULL
        ) STRICT;
        CREATE TABLE inbound (
            session INTEGER NOT NULL,
            packet_id INTEGER NOT NULL,
            PRIMARY KEY (session, packet_id)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE subscription (
            session INTEGER NOT NULL,
            filter TEXT NOT NULL,
            PRIMARY KEY (session, filter)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE verdict (
            session INTEGER PRIMARY KEY,
            state TEXT NOT NULL,
            reason_code TEXT NOT NULL,
            message TEXT NOT NULL,
            server_code INTEGER,
            boot_id TEXT NOT NULL,
            since INTEGER NOT NULL,
            -- What it is based on: another configuration or another credential makes it void.
            configuration TEXT,
            credential TEXT
        ) STRICT;
        -- For people who open the file.
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
        -- Independent of the other tables: it has the names of sessions, also of those that no longer exist.
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
        -- The retained messages that a session publishes, and the topics where the server may hold one. They are separate,
        -- so that a publication that was removed while there was no connection is still cleared at the server.
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
        CREATE TABLE retained (
            session INTEGER NOT NULL,
            topic TEXT NOT NULL,
            PRIMARY KEY (session, topic)
        ) STRICT, WITHOUT ROWID;
        -- The room that a session was told to switch to, and the one that its file named then.
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
        -- One row for each message and each consumer that has not taken it yet.
        -- key: consumer.id * 2^48 + sequence, so that a consumer's messages lie next to each other in order.
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
        -- Our packet identifiers that the server may still hold.
        CREATE TABLE retired (
            session INTEGER NOT NULL,
            packet_id INTEGER NOT NULL,
            PRIMARY KEY (session, packet_id)
        ) STRICT, WITHOUT ROWID;
        -- The servers that hold a session, or an old copy of it.
        CREATE TABLE home (
            session INTEGER NOT NULL,
            -- 0: where it is; then those with an old copy.
            position INTEGER NOT NULL,
            address TEXT NOT NULL,
            PRIMARY KEY (session, position)
        ) STRICT, WITHOUT ROWID;
        -- The times since when a session is in its room, as it says now and as it said before.
        CREATE TABLE presence (
            session INTEGER NOT NULL,
            since INTEGER NOT NULL,
            PRIMARY KEY (session, since)
        ) STRICT, WITHOUT ROWID;
        """

    /// What must not be mistaken for something older after the last moments were lost; what consumers have missed; the keys
    /// of messages; and what servers hold of a session that continued elsewhere.
    private static let version9 = """
        -- The client identifier that the session at the server belongs to.
        ALTER TABLE session ADD COLUMN client_id TEXT;
        CREATE INDEX session_client_id ON session (client_id) WHERE established;
        -- Numbers up to these may have been used, whatever next_sequence and next_inbox_sequence say.
        ALTER TABLE session ADD COLUMN reserved_sequence INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE session ADD COLUMN reserved_inbox_sequence INTEGER NOT NULL DEFAULT 0;
        -- Packet identifiers that messages of QoS 2 may have been sent with.
        ALTER TABLE session ADD COLUMN window_first INTEGER NOT NULL DEFAULT 0;
        ALTER TABLE session ADD COLUMN window_count INTEGER NOT NULL DEFAULT 0;
        CREATE TABLE suspect (
            session INTEGER NOT NULL,
            packet_id INTEGER NOT NULL,
            PRIMARY KEY (session, packet_id)
        ) STRICT, WITHOUT ROWID;
        ALTER TABLE consumer ADD COLUMN missed INTEGER NOT NULL DEFAULT 0;
        -- One row. Numbers of messages mean something within an epoch only.
        CREATE TABLE store (epoch TEXT NOT NULL) STRICT;
        INSERT INTO store (epoch) VALUES (lower(hex(randomblob(8))));
        CREATE TABLE publish_key (
            id INTEGER PRIMARY KEY,
            session INTEGER NOT NULL,
            key TEXT NOT NULL,
            sequence INTEGER NOT NULL,
            time INTEGER NOT NULL,
            -- NULL while the message is in the outbox; a reason code, or 256 and more for a message that was dropped.
            outcome INTEGER,
            UNIQUE (session, key)
        ) STRICT;
        CREATE INDEX publish_key_sequence ON publish_key (session, sequence);
        -- The topics on which a server may hold a presence of the session, so that those of an earlier room, user or device
        -- are cleared.
        CREATE TABLE presence_topic (
            session INTEGER NOT NULL,
            topic TEXT NOT NULL,
            PRIMARY KEY (session, topic)
        ) STRICT, WITHOUT ROWID;
        -- When the server ends its old copy; NULL for never.
        ALTER TABLE home ADD COLUMN ends_at INTEGER;
        CREATE TABLE left_exchange (
            session INTEGER NOT NULL,
            -- As in home.
            position INTEGER NOT NULL,
            inbound INTEGER NOT NULL,
            packet_id INTEGER NOT NULL,
            PRIMARY KEY (session, position, inbound, packet_id)
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE left_subscription (
            session INTEGER NOT NULL,
            position INTEGER NOT NULL,
            filter TEXT NOT NULL,
            PRIMARY KEY (session, position, filter)
        ) STRICT, WITHOUT ROWID;
        -- For how long the present server keeps the session, in seconds; NULL for ever.
        ALTER TABLE home ADD COLUMN expiry INTEGER;
        CREATE TABLE left_topic (
            session INTEGER NOT NULL,
            -- As in home.
            position INTEGER NOT NULL,
            is_presence INTEGER NOT NULL,
            topic TEXT NOT NULL,
            PRIMARY KEY (session, position, is_presence, topic)
        ) STRICT, WITHOUT ROWID;
        -- The endpoints in its file, separated by blanks; empty if they are not known.
        ALTER TABLE session ADD COLUMN servers TEXT NOT NULL DEFAULT '';
        -- Of sessions that have no file any more, only the servers that have accepted them are known.
        UPDATE session SET servers = coalesce((
            SELECT group_concat(address, ' ') FROM (
                SELECT address FROM home WHERE home.session = session.id ORDER BY position
            )
        ), '');
        -- Whether it was seen without a file since then.
        ALTER TABLE session ADD COLUMN absent INTEGER NOT NULL DEFAULT 0;
        -- Of an entry that ends an outage; NULL if no attempt failed.
        ALTER TABLE history ADD COLUMN failed_attempts INTEGER;
        ALTER TABLE history ADD COLUMN failure_code TEXT;
        ALTER TABLE history ADD COLUMN failure TEXT;
        -- In seconds, 0 for none; NULL if it is not known.
        ALTER TABLE home ADD COLUMN keep_alive INTEGER;
        -- The large contents of messages that several consumers have not taken: once for all of them.
        -- key: session.id * 2^48 + sequence. It goes with the last row of the inbox that refers to it.
        CREATE TABLE content (
            key INTEGER PRIMARY KEY,
            size INTEGER NOT NULL,
            topic TEXT NOT NULL,
            properties BLOB,
            payload BLOB NOT NULL
        ) STRICT;
        -- If it is not NULL, the row has no topic, properties and payload of its own.
        ALTER TABLE inbox ADD COLUMN content_key INTEGER;
        CREATE INDEX inbox_content_key ON inbox (content_key) WHERE content_key IS NOT NULL;
        CREATE TRIGGER inbox_row_deleted AFTER DELETE ON inbox WHEN OLD.content_key IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM inbox WHERE content_key = OLD.content_key) BEGIN
            DELETE FROM content WHERE key = OLD.content_key;
        END;
        """

    /// Returns the version of the file, 0 for a new one.
    ///
    /// - Throws: ``StoreError/newerSchema(path:found:known:)``, or ``StoreError/corrupt(path:cause:)`` for a number that
    ///   is damaged: one from before the first release, or a higher one in a file whose schema is the newest that is
    ///   known.
    static func version(of database: Database, after migrations: [String]) throws(StoreError) -> Int {
        let known = version(after: migrations)
        let found = Int(try database.integer("PRAGMA user_version") ?? 0)
        if found == 0 || (first...known).contains(found) { return found }
        guard found > known, try !KnownSchema(version: known, migrations: migrations).isExactly(that: database) else {
            throw .corrupt(path: database.path, cause: "it has the number of a schema that it has not (\(found))")
        }
        throw .newerSchema(path: database.path, found: found, known: known)
    }

    /// Copies the file. A daemon that is started again and again must not fill the disk with partial copies, so they all
    /// have one name.
    private static func copy(
        _ database: Database, to name: String, in directory: borrowing StateDirectory
    ) throws(StoreError) {
        let path = "\(directory.path)/\(partName)"
        let all = try database.integer("PRAGMA page_count") ?? 0
        let free = try database.integer("PRAGMA freelist_count") ?? 0
        let needed = UInt64(max(0, (all - free) * (try database.integer("PRAGMA page_size") ?? 4096)))
        if let available = directory.space?.available, available < directory.reserve + needed {
            throw .full(
                path: path,
                cause:
                    "before the file's layout is changed it is copied, which takes \(needed) bytes, and \(available) are "
                    + "left, of which \(directory.reserve) are kept for acknowledgements")
        }
        do throws(StoreError) {
            // SQLite would let others read it; it takes an empty file as it is.
            try directory.makePrivateFile(partName)
            try database.run("VACUUM INTO ?", .text(path))
            try directory.rename(partName, to: name)
        } catch {
            removePart(in: directory)
            throw error
        }
    }

    /// Brings the file to the newest version, one transaction per step; a file with an older version is copied first.
    ///
    /// - Returns: the name of the copy, if there was something to copy.
    static func migrate(
        _ database: Database, to migrations: [String], backupName: (Int) -> String, directory: borrowing StateDirectory
    ) throws(StoreError) -> String? {
        let known = version(after: migrations)
        let found = try version(of: database, after: migrations)
        guard found < known else { return nil }
        var backup: String?
        if found > 0 {
            let name = backupName(found)
            try copy(database, to: name, in: directory)
            backup = name
        }
        for (version, statements) in zip(versions(after: migrations), migrations) where version > found {
            try database.transaction { () throws(StoreError) in
                try database.execute(statements)
                // A pragma takes no bound value; this is our own number.
                try database.execute("PRAGMA user_version = \(version)")
            }
        }
        return backup
    }
}
