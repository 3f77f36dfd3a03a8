import Configuration

/// What the names of users and groups stood for when they were looked up last.
struct Accounts: Hashable, Sendable {
    /// `nil` for a name that does not exist.
    private var users: [String: UInt32?] = [:]
    private var groups: [String: UInt32?] = [:]
    /// Why some names could not be looked up.
    private(set) var failure: HostAccounts.Failure?

    init() {}

    /// Looks the names up. A name service may not answer, so this must not be called on the event loop.
    init(of principals: [Principal]) {
        for principal in Set(principals) {
            do throws(HostAccounts.Failure) {
                switch principal {
                case .user(let name): users[name] = .some(try HostAccounts.uid(ofUser: name))
                case .group(let name): groups[name] = .some(try HostAccounts.gid(ofGroup: name))
                case .anyone, .uid: break
                }
            } catch {
                failure = error
            }
        }
    }

    func uid(ofUser name: String) -> UInt32? { users[name] ?? nil }
    func gid(ofGroup name: String) -> UInt32? { groups[name] ?? nil }

    /// Returns the texts of those that do not exist, in order, as the configuration writes them. Those that have not been
    /// looked up are not among them.
    func missing(of principals: [Principal]) -> [String] {
        Set(
            principals.compactMap { principal in
                switch principal {
                case .user(let name) where users[name] == .some(nil): "user:\(name)"
                case .group(let name) where groups[name] == .some(nil): "group:\(name)"
                default: nil
                }
            }
        ).sorted()
    }

    /// Takes what was looked up, and keeps what is known of other names: those that could not be looked up, and those that
    /// a reload may need next.
    mutating func update(with newer: Accounts) {
        users.merge(newer.users) { $1 }
        groups.merge(newer.groups) { $1 }
    }
}

extension Principal {
    /// Whether it has to be looked up.
    var isName: Bool {
        switch self {
        case .user, .group: true
        case .anyone, .uid: false
        }
    }
}

extension AccessConfiguration {
    var principals: [Principal] { observe + message + control }

    /// Those that a file names: a host need not have the groups of the defaults.
    var named: [Principal] {
        let defaults = Self()
        return [(observe, defaults.observe), (message, defaults.message), (control, defaults.control)]
            .flatMap { $0 == $1 ? [] : $0 }
    }
}

extension TopicConfiguration {
    var principals: [Principal] { (publish + subscribe).map(\.who) }
}

extension LoadedConfiguration {
    /// Everyone whom the files of the sessions name.
    var principals: [Principal] { sessions.values.flatMap { (try? $0.get())?.topics.principals ?? [] } }
}

extension SessionRegistry {
    /// Everyone whom the files of the sessions name.
    var principals: [Principal] {
        (drivers.map(\.configuration) + unstarted.values.map(\.configuration)).flatMap(\.topics.principals)
    }
}
