internal import MQTT

/// Tells which rows of a damaged database make sense, although SQLite can read them: one wrong bit in a row is enough.
struct RowSense {
    private let table: String
    private let places: [String: Int]
    var columns: Int { places.count }

    init(table: String, columns: [String]) {
        self.table = table
        places = Dictionary(uniqueKeysWithValues: zip(columns, columns.indices))
    }

    /// Returns the row, with the size that its contents have; `nil` if it makes no sense.
    func row(_ values: [Database.Value]) -> [Database.Value]? {
        func integer(_ column: String) -> Int64? {
            if let place = places[column], case .int64(let value) = values[place] { value } else { nil }
        }
        func isPacketID() -> Bool { (1...Int64(UInt16.max)).contains(integer("packet_id") ?? 0) }
        func isKey() -> Bool { MessageKey(rawValue: integer("key") ?? 0).isPossible }
        switch table {
        case "message", "inbox":
            guard isKey(), UInt8(exactly: integer("qos") ?? -1).flatMap(QoS.init) != nil, let place = places["size"],
                let size = size(values)
            else { return nil }
            var values = values
            values[place] = .integer(size)
            return values
        case "in_flight": return isKey() && isPacketID() ? values : nil
        case "quarantine": return isKey() && UInt8(exactly: integer("reason_code") ?? -1) != nil ? values : nil
        case "inbound", "retired", "suspect", "left_exchange": return isPacketID() ? values : nil
        case "session", "consumer": return MessageKey.sessions.contains(integer("id") ?? 0) ? values : nil
        default: return values
        }
    }

    /// - Returns: `nil` if the properties of the message are unreadable.
    private func size(_ values: [Database.Value]) -> Int? {
        guard let topic = places["topic"], case .text(let topic) = values[topic],
            let payload = places["payload"], case .blob(let payload) = values[payload],
            let properties = places["properties"]
        else { return nil }
        var message = OutboundMessage(topic: topic, payload: payload)
        switch values[properties] {
        case .null: break
        case .blob(let bytes):
            guard let decoded = StoredProperties.decode(bytes) else { return nil }
            message.properties = decoded
        default: return nil
        }
        return message.size
    }
}
