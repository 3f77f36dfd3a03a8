import Foundation

/// How long a soak runs, and the seed of what happens. `HOLDFAST_SOAK="MINUTES SEED"` sets both, as `make soak` does.
/// Without it, there are two rounds that are the same each time.
struct SoakPlan {
    var minutes: Int?
    var seed = UInt64(1)

    init() {
        guard let words = getenv("HOLDFAST_SOAK").map({ String(cString: $0).split(separator: " ") }) else { return }
        let numbers = words.compactMap { UInt64($0) }
        precondition(numbers.count == 2, "HOLDFAST_SOAK must be two numbers: of minutes, a seed")
        minutes = Int(numbers[0])
        seed = numbers[1]
    }

    /// Returns the faults of a round, in order.
    func faults(round: Int, _ moments: inout Moments) -> [SoakFault] {
        let isForgetful = round % 2 == 0
        guard minutes == nil else {
            let possible = SoakFault.allCases.filter { isForgetful || !$0.isForgetful }
            return (0..<12).map { _ in possible[Int.random(in: possible.indices, using: &moments)] }
        }
        // Each once.
        return SoakFault.allCases.filter { $0.isForgetful == isForgetful }.shuffled(using: &moments)
    }

    /// Returns how long a fault lasts: mostly short, so that much is interrupted midway; some faults are outages.
    func length(_ moments: inout Moments) -> Duration {
        .milliseconds(Int(50 * pow(minutes == nil ? 30 : 200, Double.random(in: 0...1, using: &moments))))
    }
}

/// The faults that can happen.
enum SoakFault: String, CaseIterable, Comparable {
    case linkDown = "link down and up"
    case addressChanged = "address changed"
    case routeMoved = "route moved, address kept"
    case uplinkReplaced = "route moved, address gone"
    case blackHole = "black hole and heal"
    case deaf = "black hole, inward only"
    case reset = "connections reset"
    case congestion = "64 kbit/s"
    case serverPaused = "server SIGSTOP, SIGCONT"
    case daemonPaused = "daemon SIGSTOP, SIGCONT"
    case daemonStopped = "daemon SIGTERM, started"
    case daemonKilled = "daemon SIGKILL, started"
    case serverKilled = "server SIGKILL, started"
    case serverForgot = "server SIGKILL, its state lost"
    case takenOver = "taken over by another client"

    /// Two simultaneous faults are in different places.
    enum Place { case network, server, daemon }

    var place: Place {
        switch self {
        case .linkDown, .addressChanged, .routeMoved, .uplinkReplaced, .blackHole, .deaf, .reset, .congestion: .network
        case .serverPaused, .serverKilled, .serverForgot, .takenOver: .server
        case .daemonPaused, .daemonStopped, .daemonKilled: .daemon
        }
    }

    /// Whether the server may lose what it has acknowledged. (mosquitto writes its state after it has answered, and a
    /// client that takes over begins its own session.)
    var isForgetful: Bool { [.serverKilled, .serverForgot, .takenOver].contains(self) }

    static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
}
