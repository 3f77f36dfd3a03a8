internal import MQTT
internal import Session

/// The servers that have a session, or an older copy of it.
extension DurableStore {
    func homes(of session: Int64) throws(StoreError) -> [SessionHome] {
        let rows = try opened().rows(
            "SELECT position, address, ends_at FROM home WHERE session = ? ORDER BY position", .integer(session)
        ) { ($0.integer(0), $0.text(1), $0.optionalInteger(2)) }
        var homes: [SessionHome] = []
        for (position, address, endsAt) in rows {
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
                    endsAt: endsAt.map { Timestamp(rawValue: $0) }))
        }
        return homes
    }

    func setHomes(_ homes: [SessionHome], _ session: Int64, _ database: Database) throws(StoreError) {
        try database.run("DELETE FROM home WHERE session = ?", .integer(session))
        try database.run("DELETE FROM left_exchange WHERE session = ?", .integer(session))
        try database.run("DELETE FROM left_subscription WHERE session = ?", .integer(session))
        for (position, home) in homes.enumerated() {
            let place: [Database.Value] = [.integer(session), .integer(position)]
            try database.run(
                text: "INSERT INTO home (session, position, address, ends_at) VALUES (?, ?, ?, ?)",
                with: place + [.text(home.address), .optional(home.endsAt?.rawValue)])
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
        }
    }
}
