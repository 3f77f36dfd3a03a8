import SessionCore

// The keys of [network]: which networks a session may use.

extension ConfigurationForm<String> {
    /// The kernel's name of a network interface.
    static var interface: Self {
        text("the name of a network interface, 1 to 15 bytes without spaces and /", write: TOML.text) { text in
            let isName =
                (1...15).contains(text.utf8.count) && text != "." && text != ".."
                && !text.unicodeScalars.contains { scalar in
                    scalar.properties.isWhitespace || scalar.value < 0x20 || scalar == "/" || scalar == ":"
                }
            return isName ? text : nil
        }
    }
}

extension SessionConfiguration {
    static let networkKeys: [ConfigurationKey<Self>] = [
        .init("network.interfaces", \.network.interfaces, .list(.interface, of: "interfaces")),
        .init("network.types", \.network.types, .list(.choice, of: "types of network")),
        .init("network.metered", \.network.metered, .choice),
    ]
}
