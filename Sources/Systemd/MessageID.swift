/// The kinds of events that the journal can explain: 128 bits each, as 32 hexadecimal digits.
///
/// Each has a text in `systemd/holdfast.catalog`, which `journalctl -x` shows. An id never changes its meaning.
public enum MessageID: String, Sendable, CaseIterable, CustomStringConvertible {
    case started = "fd5b3ba862e341cd953b60be3f2d9a53"
    case ready = "de5806cfb6e14fac8bfbf319bf0a37f3"
    case sessionConnected = "74f195ebd7e74fccaf212c088a4bc5e8"
    case sessionLost = "386027dc55ba42efb7df104762ab001e"
    case stillTrying = "4acdf5fc57794ede87a9661566651661"
    case failed = "85e41f8019e84a418983f9ecfef34d4d"
    case displaced = "61b99b1ceff54911a173df42ebfdf86e"
    case credentialRejected = "0f419f2aa20c40d38fd3d875a3d49af2"
    case credentialExpiring = "90a987f5076243a0ad07d49c35fce3ad"
    case pathChanged = "aed5c6eebaf94bf48a2fb0ef585274d5"
    case resumedFromSleep = "8560713b1f644aaea55eb14fc6f309dc"
    case clockStepped = "5fc37f6f2d774298b9a7498de09cf69b"
    case netlinkOverrun = "65b11c8b1d994cad885f5c24dd3e0992"
    case storeFull = "abfea2847145450988be542cd9542c14"
    case storeReplaced = "e05d0c8820c442d3bc13d2c10312ddac"
    case itemQuarantined = "ec0080fc0ea84fdfaa6fe1212b159afc"
    case messageDropped = "3d0b5a6c2f5e4d6f9a1c7be8f2460d93"
    case messageRefused = "b1d8a3f07c924e5d8e6f2a90c4d17b35"
    case subscriptionRefused = "c3a1f7d2b84e4f0fa1d09c6e57b82e41"
    case reloadDone = "5b8fba112e9d49bd9e539def4042889f"
    case reloadRefused = "6364bd1d9f194c20b653dcf39322676a"
    case accessDenied = "059e506c4b1e42e4bd4df8cfc32e3824"
    case stopping = "36f7723045064ed2a9ecc3db7d8e0ae9"

    /// The 32 lower-case hexadecimal digits.
    public var description: String { rawValue }
}
