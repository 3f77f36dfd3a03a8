import ControlAPI
import SessionCore

/// What a cell of a page claims, in the words that the pages explain: "failed, `banned`", "event `connection-lost`".
struct Claim: Hashable, Sendable, CustomStringConvertible {
    enum What: Hashable, Sendable {
        case state
        case stateFrom(SessionState)
        case reason(String)
        case mode(ReconnectMode)
        case resumed(Bool)
        case phase(Phase)
        case cause(RoomParticipant.Departure)
        case quality(Quality)
        case publication(PublicationState)
        case event(SessionEvent.Kind)
        case error(String)
    }

    var what: What
    /// The state that the page names before it; a state holds until the next one in the cell.
    var state: SessionState?

    var description: String { "\(state?.rawValue ?? "") \(what)" }

    /// Whether one of these events is what is claimed. A reason without a state means that attempts go on.
    func isTrue(of outcome: Situation.Outcome) -> Bool {
        func told(_ isIt: (SessionEvent) -> Bool) -> Bool {
            outcome.told.contains { event in
                guard event.event == .stateChanged || event.event == .phaseChanged else { return false }
                return (state == nil || event.state == state) && isIt(event)
            }
        }
        return switch what {
        case .state: told { _ in true }
        case .stateFrom(let from): told { $0.from == from }
        case .reason(let code):
            told { $0.reason?.code == code && (state != nil || $0.state == .connecting || $0.state == .reconnecting) }
        case .mode(let mode):
            told { $0.mode == mode }
                || state == nil && outcome.told.contains { $0.mode == mode && $0.event != .stateChanged }
        case .resumed(let resumed): told { $0.resumed == resumed }
        case .phase(let phase): told { $0.phase == phase }
        case .cause(let cause): outcome.told.contains { $0.cause == cause }
        case .quality(let quality):
            outcome.told.contains { $0.event == .qualityChanged && $0.quality == quality }
        case .publication(let state): outcome.told.contains { $0.publication == state }
        case .event(let kind): outcome.told.contains { $0.event == kind }
        case .error(let code): outcome.errors.contains(code)
        }
    }

    var isAboutTheState: Bool {
        switch what {
        case .state, .stateFrom, .reason: true
        default: false
        }
    }

    /// Whether the event is what is claimed: it is the one that says what happened in a situation of the row.
    func covers(_ event: SessionEvent) -> Bool {
        switch what {
        case .reason(let code): event.reason?.code == code && (state == nil || event.state == state)
        case .state, .stateFrom: event.state == state
        default: false
        }
    }
}

extension Claim {
    /// The claims of a cell. What stands in brackets is a remark; a cell that begins with a hyphen and a bracket has none.
    static func claims(in cell: String) -> [Claim] {
        guard !cell.hasPrefix("- (") else { return [] }
        var reader = Reader()
        for part in withoutRemarks(cell).split(separator: ";") {
            reader.beginPart()
            for (index, piece) in part.split(separator: "`", omittingEmptySubsequences: false).enumerated() {
                if index % 2 == 1 {
                    reader.read(code: String(piece))
                } else {
                    for word in piece.split(whereSeparator: { " ,:.".contains($0) }) { reader.read(word: String(word)) }
                }
            }
        }
        return reader.claims
    }

    private static func withoutRemarks(_ cell: String) -> String {
        var depth = 0
        return String(
            cell.filter { character in
                if character == "(" { depth += 1 }
                defer { if character == ")" { depth -= 1 } }
                return depth == 0
            })
    }

    private struct Reader {
        var claims: [Claim] = []
        private var state: SessionState?
        private var isAboutEvents = false
        private var isAboutErrors = false
        /// The word that the next ones are values of: `mode`, `resumed`, `cause`, `quality` or an event.
        private var key = ""
        private var previous = ""

        mutating func beginPart() {
            (isAboutEvents, isAboutErrors, key, previous) = (false, false, "", "")
        }

        private mutating func claim(_ what: What) { claims.append(Claim(what: what, state: state)) }

        mutating func read(word: String) {
            defer { previous = word }
            switch word {
            case "event", "events": isAboutEvents = true
            case "RPC": isAboutErrors = true
            case "mode", "cause", "quality": key = word
            case "excellent", "good", "poor", "lost", "left", "pending", "published", "removed": read(value: word)
            case "to", "with", "the": break
            case "quick", "full": if key == "mode" { claim(.mode(word == "quick" ? .quick : .full)) }
            case "true", "false": if key == "resumed" { claim(.resumed(word == "true")) }
            case "or", "and": break
            default:
                key = ""
                if let named = SessionState(rawValue: word) { read(named) }
            }
        }

        private mutating func read(value: String) {
            switch key {
            case "cause": claim(.cause(.init(rawValue: value)))
            case "quality": Quality(rawValue: value).map { claim(.quality($0)) }
            case SessionEvent.Kind.publicationChanged.rawValue: claim(.publication(.init(rawValue: value)))
            default: break
            }
        }

        private mutating func read(_ named: SessionState) {
            switch previous {
            case "from":
                claim(.stateFrom(named))
            // "when it was connected", "by reconnecting", "shows quick ones as connected"
            case "was", "by", "as": break
            default:
                state = named
                claim(.state)
            }
        }

        mutating func read(code word: String) {
            defer { previous = "" }
            if word == "resumed" || word == "mode" {
                key = word
            } else if previous == "phase", let phase = Phase(rawValue: word) {
                claim(.phase(phase))
            } else if let error = RPCError.Code.allCases.first(where: { $0.name == word }), isAboutErrors {
                claim(.error(error.name))
            } else if Reason.Code(rawValue: word) != nil, !(isAboutEvents && word == "displaced") {
                claim(.reason(word))
            } else if Claim.kinds.contains(.init(rawValue: word)) {
                claim(.event(.init(rawValue: word)))
                key = word
            } else if RPCError.Code.allCases.contains(where: { $0.name == word }) {
                claim(.error(word))
            }
        }
    }

    static let kinds: Set<SessionEvent.Kind> = [
        .stateChanged, .phaseChanged, .connectionLost, .reconnectStarted, .reconnectCompleted, .displaced,
        .credentialExpiring, .qualityChanged, .pathChanged, .participantJoined, .participantLeft,
        .participantChanged, .publicationChanged, .roomChanged, .messageRejected, .messageDropped,
    ]
}
