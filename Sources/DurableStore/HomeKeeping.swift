internal import MQTT
internal import Session

/// The servers that have a session, or an older copy of it.
extension DurableStore {
    func homes(of session: Int64) throws(StoreError) -> [SessionHome] {
        let rows = try opened().rows(
            "SELECT position, address, expiry, ends_at, keep_alive FROM home WHERE session = ? ORDER BY position",
            .integer(session)
        ) { ($0.integer(0), $0.text(1), $0.optionalInteger(2), $0.optionalTime(3), $0.optionalInteger(4)) }
        var homes: [SessionHome] = []
        for (position, address, expiry, endsAt, keepAlive) in rows {
            let place: [Database.Value] = [.integer(session), .integer(position)]
            homes.append(
                SessionHome(
                    address,
                    left: LeftSession(
                        unreleased: try packetIDs(
                            """
                            SELECT packet_id FROM left_exchange WHERE session = ? AND position = ? AND NOT inbound
                            """, place),
                        inbound: try packetIDs(
                            "SELECT packet_id FROM left_exchange WHERE session = ? AND position = ? AND inbound", place),
                        filters: try filters(
                            "SELECT filter FROM left_subscription WHERE session = ? AND position = ?", place)),
                    retained: RetainedTopics(
                        publications: try leftTopics(place, isPresence: false),
                        presences: try leftTopics(place, isPresence: true)),
                    expiry: expiry.map { UInt32(clamping: $0) },
                    keepAlive: keepAlive.map { UInt16(clamping: $0) },
                    endsAt: endsAt))
        }
        return homes
    }

    private func leftTopics(_ place: [Database.Value], isPresence: Bool) throws(StoreError) -> Set<String> {
        Set(
            try opened().rows(
                text: "SELECT topic FROM left_topic WHERE session = ? AND position = ? AND is_presence = ?",
                with: place + [.integer(isPresence ? 1 : 0)]
            ) { $0.text(0) })
    }

    func setHomes(_ homes: [SessionHome], _ session: Int64, _ database: Database) throws(StoreError) {
        try database.run("DELETE FROM home WHERE session = ?", .integer(session))
        try database.run("DELETE FROM left_exchange WHERE session = ?", .integer(session))
        try database.run("DELETE FROM left_subscription WHERE session = ?", .integer(session))
        try database.run("DELETE FROM left_topic WHERE session = ?", .integer(session))
        for (position, home) in homes.enumerated() {
            let place: [Database.Value] = [.integer(session), .integer(position)]
            try database.run(
                text: """
                    INSERT INTO home (session, position, address, expiry, ends_at, keep_alive) VALUES (?, ?, ?, ?, ?, ?)
                    """,
                with: place + [
                    .text(home.address), .optional(home.expiry.map { Int64($0) }), .optional(home.endsAt?.rawValue),
                    .optional(home.keepAlive.map { Int64($0) }),
                ])
            let exchanges = home.left.unreleased.map { (0, $0) } + home.left.inbound.map { (1, $0) }
            for (inbound, packetID) in exchanges {
                try database.run(
                    text: """
                        INSERT INTO left_exchange (session, position, inbound, packet_id) VALUES (?, ?, ?, ?)
                        """,
                    with: place + [.integer(inbound), .integer(packetID.rawValue)])
            }
            for filter in home.left.filters {
                try database.run(
                    text: "INSERT INTO left_subscription (session, position, filter) VALUES (?, ?, ?)",
                    with: place + [.text(filter.string)])
            }
            let topics = home.retained.publications.map { (0, $0) } + home.retained.presences.map { (1, $0) }
            for (isPresence, topic) in topics {
                try database.run(
                    text: "INSERT INTO left_topic (session, position, is_presence, topic) VALUES (?, ?, ?, ?)",
                    with: place + [.integer(isPresence), .text(topic)])
            }
        }
    }
}
