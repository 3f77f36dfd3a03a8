import Vocabulary

/// Why the kernel's routing tables cannot be watched or read.
public enum NetlinkError: Error, Hashable, Sendable {
    /// A system call failed.
    /// - Parameters:
    ///   - call: its name, for example `socket`.
    ///   - number: the `errno`.
    case system(call: String, number: Int32)
    /// The kernel refused a request.
    /// - Parameters:
    ///   - number: the `errno`, positive.
    ///   - text: the kernel's own words (extended acknowledgement), if it gave any.
    case refused(number: Int32, text: String?)
    /// The kernel's tables changed while they were read, each time it was tried.
    case interrupted
    /// The kernel did not answer a request, although it always should.
    case noAnswer
    /// The watcher was stopped, or was started already.
    case notStartable
}

extension NetlinkError: CustomStringConvertible {
    public var description: String {
        switch self {
        case .system(let call, let number): "\(call) failed: \(systemText(number))"
        case .refused(let number, let text):
            "the kernel refused a netlink request: \(systemText(number))"
                + (text.map { " (\($0))" } ?? "")
        case .interrupted: "the kernel's tables kept changing while they were read"
        case .noAnswer: "the kernel did not answer a netlink request"
        case .notStartable: "the network watcher was stopped, or was started already"
        }
    }
}
