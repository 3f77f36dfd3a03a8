/// What bytes from outside reach first. Each target takes any bytes, and traps if something is not as it must be; so the
/// fuzzer (`make fuzz`) and the suite (`FuzzTests`) run the same.
public enum FuzzTarget: String, CaseIterable, Sendable {
    /// The bytes of a peer, cut into chunks, in either direction and version.
    case mqttDecoder = "mqtt-decoder"
    /// What a server, a disk and programs do to the client's machine, in any order.
    case clientMachine = "client-machine"
    /// What a program writes to the control socket.
    case jsonRPC = "json-rpc"
    /// What the kernel sends.
    case netlink
    /// What a person writes into a file.
    case configuration

    public func run(_ bytes: [UInt8]) {
        switch self {
        case .mqttDecoder: decodePackets(bytes)
        case .clientMachine: driveClientMachine(bytes)
        case .jsonRPC: answerLines(bytes)
        case .netlink: readNetlink(bytes)
        case .configuration: readConfiguration(bytes)
        }
    }
}

/// Takes bytes as decisions; when they are used up, every decision is 0.
struct ByteSource {
    private var bytes: ArraySlice<UInt8>

    init(_ bytes: [UInt8]) {
        self.bytes = bytes[...]
    }

    var isEmpty: Bool { bytes.isEmpty }

    mutating func byte() -> UInt8 { bytes.popFirst() ?? 0 }

    /// A number below the bound, which is 1...256.
    mutating func below(_ bound: Int) -> Int { Int(byte()) % bound }

    mutating func take(_ count: Int) -> [UInt8] {
        let taken = Array(bytes.prefix(count))
        bytes = bytes.dropFirst(count)
        return taken
    }
}
