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

    /// Returns the row, with the size that its contents have, unless these are elsewhere; `nil` if it makes no sense.
    func row(_ values: [Database.Value]) -> [Database.Value]? {
        func integer(_ column: String) -> Int64? {
            if let place = places[column], case .int64(let value) = values[place] { value } else { nil }
        }
        func text(_ column: String) -> String {
            if let place = places[column], case .text(let value) = values[place] { value } else { "" }
        }
        func isPacketID() -> Bool { (1...Int64(UInt16.max)).contains(integer("packet_id") ?? 0) }
        func isKey() -> Bool { MessageKey(rawValue: integer("key") ?? 0).isPossible }
        switch table {
        case "message", "inbox", "content":
            guard isKey(), table == "content" || Self.isQoS(integer("qos")), let place = places["size"],
                let size = size(values)
            else { return nil }
            // Either the row has a content, and then a topic, or it refers to one.
            let sequence = integer("key").map { MessageKey(rawValue: $0).sequence }
            let content = integer("content_key").map { MessageKey(rawValue: $0).sequence }
            if table == "inbox", text("topic").isEmpty ? content != sequence : content != nil { return nil }
            guard content == nil else { return values }
            var values = values
            values[place] = .integer(size)
            return values
        case "in_flight": return isKey() && isPacketID() ? values : nil
        case "quarantine": return isKey() && UInt8(exactly: integer("reason_code") ?? -1) != nil ? values : nil
        case "inbound", "retired", "suspect", "left_exchange": return isPacketID() ? values : nil
        case "session": return MessageKey.sessions.contains(integer("id") ?? 0) ? values : nil
        case "consumer":
            let isConsumer = Self.isConsumer(name: text("name"), qos: integer("qos"))
            return isConsumer && MessageKey.sessions.contains(integer("id") ?? 0) ? values : nil
        case "publication":
            return Self.isPublication(qos: integer("qos")) && properties(values) != nil ? values : nil
        case "subscription", "left_subscription": return Self.isFilter(text("filter")) ? values : nil
        default: return values
        }
    }

    static func isConsumer(name: String, qos: Int64?) -> Bool {
        ConsumerName(name) != nil && isQoS(qos)
    }

    private static func isQoS(_ number: Int64?) -> Bool { UInt8(exactly: number ?? -1).flatMap(QoS.init) != nil }

    static func isPublication(qos: Int64?) -> Bool {
        let qos = UInt8(exactly: qos ?? -1).flatMap(QoS.init)
        return qos != nil && qos != .exactlyOnce
    }

    /// Also of those that earlier versions accepted.
    static func isFilter(_ text: String) -> Bool {
        do throws(InvalidTopic) {
            _ = try TopicFilter(text)
            return true
        } catch {
            return error == .containsControlCharacter || error == .containsNonCharacter
        }
    }

    /// - Returns: `nil` if they are unreadable.
    private func properties(_ values: [Database.Value]) -> Publish.Properties? {
        guard let place = places["properties"] else { return nil }
        return switch values[place] {
        case .null: Publish.Properties()
        case .blob(let bytes): StoredProperties.decode(bytes)
        default: nil
        }
    }

    /// - Returns: `nil` if the properties of the message are unreadable.
    private func size(_ values: [Database.Value]) -> Int? {
        guard let topic = places["topic"], case .text(let topic) = values[topic],
            let payload = places["payload"], case .blob(let payload) = values[payload],
            let properties = properties(values)
        else { return nil }
        var message = OutboundMessage(topic: topic, payload: payload)
        message.properties = properties
        return message.size
    }
}
