import Session
import SessionCore

// What a session's file says about its room.

extension ConfigurationForm<String> {
    /// Levels of a topic, to which others may be added on both sides.
    static func room(mayBeEmpty: Bool) -> Self {
        let end = mayBeEmpty ? ", or empty" : ""
        return text(
            "levels of a topic such as \"plant/north\", none of them empty, without + and #\(end)", write: TOML.text
        ) {
            text in
            if text.isEmpty { return mayBeEmpty ? text : nil }
            return Room.isValid(text) && !text.unicodeScalars.contains { $0.properties.generalCategory == .control }
                ? text : nil
        }
    }
}

extension SessionConfiguration {
    /// Four times the shortest keep-alive, a second.
    private static let shortestPresenceTimeout = Duration.seconds(4)

    /// Finds what is wrong with the room although each key is right on its own.
    func roomContradictions(in content: ConfigurationValue) -> [ConfigurationError] {
        var errors: [ConfigurationError] = []
        if kick == .yield, let value = content["reconnect", "kick"] {
            if room.isEmpty {
                errors += value.error("kick = \"yield\" needs a room: presence there tells who is online").list
            } else if mqtt.authentication != .password {
                errors +=
                    value.error("kick = \"yield\" is not possible together with SCRAM-SHA-256 in this version").list
            }
        }
        guard !room.isEmpty, let key = content["room"] else { return errors }
        let names = [("room", room), ("room-prefix", roomPrefix), ("user", user), ("device", device)]
        for (name, text) in names where !text.isInNormalFormC {
            errors += (content[name] ?? key).error("in a room, \(name) \(Room.normalForm)").list
        }
        if !Room.isLevel(user), !user.isEmpty {
            let value = content["user"] ?? key
            errors += value.error("in a room, the user is a level of a topic: without /, + and #").list
        }
        if !device.isEmpty, !Room.isLevel(device) {
            let value = content["device"] ?? key
            errors += value.error("in a room, the device is a level of a topic: without /, + and #").list
        }
        if presenceTimeout > .zero, presenceTimeout < Self.shortestPresenceTimeout {
            let value = content["presence", "timeout"] ?? key
            errors +=
                value.error(
                    "in a room, presence.timeout is at least \"4s\": the session sends something four times within it; "
                        + "with \"0s\" the others learn of a loss when the server does"
                ).list
        }
        if let expiry = mqtt.sessionExpiry, expiry <= presenceTimeout {
            let value = content["mqtt", "session-expiry"] ?? content["presence", "timeout"] ?? key
            let message = "mqtt.session-expiry must be longer than presence.timeout, so that short outages are not seen"
            errors += value.error(message).list
        }
        return errors
    }
}
