/// What has become of something that the session wants at the server: an announcement, or a subscription.
public enum ServerAnswer: Hashable, Sendable {
    /// What the server said, and for people, if it said more than its code.
    case said(ReasonCode, String? = nil)
    /// The server ended connections, or fell silent, instead of answering, and has not said why.
    case unsaid
    /// The server was not asked, because of the limits that it stated, or of its protocol: what the session does not do,
    /// and why.
    case notAsked(String)

    public static let success = ServerAnswer.said(.success)

    /// - Parameter code: what the server said when it ended connections instead of answering, if it did.
    init(endedWith code: ReasonCode?, _ words: String? = nil) { self = code.map { .said($0, words) } ?? .unsaid }

    /// The server's code, if it gave one.
    public var code: ReasonCode? { if case .said(let code, _) = self { code } else { nil } }

    public var isRefusal: Bool { code?.isError ?? true }

    /// The answer in words for people. What the session does not ask for is a sentence that says so.
    public var words: String {
        switch self {
        case .said(let code, let words): words.map { "\(code): \($0)".plain() } ?? code.description
        case .unsaid: "the server ends connections, falls silent or does not answer, and does not say why"
        case .notAsked(let sentence): sentence
        }
    }

    /// Whether this is no news after that: a server may say the same in other words each time.
    package func repeats(_ earlier: ServerAnswer) -> Bool {
        if case (.said(let code, _), .said(let before, _)) = (self, earlier) { code == before } else { self == earlier }
    }
}
