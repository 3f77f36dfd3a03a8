import Vocabulary

@testable import SessionCore

/// One thing that happens in a run. Its numbers are small, and any numbers are valid, so that a schedule with parts
/// removed is still a schedule.
public struct Step: Hashable, Sendable {
    public enum What: String, CaseIterable, Sendable {
        // Time.
        /// Everything that can happen now happens.
        case settle
        /// One round of what can happen now.
        case turn
        /// Time passes to the next event, once more than the number says.
        case next
        case pass

        // What programs do. The first number is the host.
        case publish
        case send = "publish-many"
        case publishLarge = "publish-large"
        case publishWithKey = "publish-with-key"
        case hog
        case subscribe
        case unsubscribe
        case attach
        case detach
        case acknowledge
        case endConsumer = "end-consumer"
        case putPublication = "put-publication"
        case removePublication = "remove-publication"
        case retry
        case drop
        case dropInFlight = "drop-in-flight"
        case connect
        case disconnect
        case reconnect
        case switchRoom = "switch-room"

        // Somebody else publishes at a server.
        case foreign
        case flawed

        // A host's network.
        case cut
        case mend
        case move
        case moveUnnoticed = "move-unnoticed"
        case silence
        case halfOpen = "half-open"
        case unsilence
        case latency
        case slowUplink = "slow-uplink"
        case piece
        case drip
        case reset
        case resetAfter = "reset-after"
        case dialFault = "dial-fault"
        case abortLoses = "abort-loses"
        case reorder
        case shift
        case dropAddress = "drop-address"

        // Servers.
        case crash
        case serverImage = "server-image"
        case restart = "restart-server"
        case hang
        case resume = "go-on"
        case forget
        case end
        case refuse
        case welcome
        case refuseTopic = "refuse-topic"
        case refuseFilter = "refuse-filter"
        case redirect
        case intrude
        case limits
        case lie
        case acceptAndClose = "accept-and-close"
        case holdAnswers = "hold-answers"
        case releaseAnswers = "release-answers"
        case nonsense
        case garbage
        case wrongAnswer = "wrong-answer"
        case again
        case token
        case dislike
        case dislikeFilter = "dislike-filter"
        case flood

        // A host's disk, clock and life.
        case diskFault = "disk-fault"
        case diskMended = "disk-mended"
        case diskDelay = "disk-delay"
        case kill
        case killAfter = "kill-after"
        case start
        case restartDaemon = "restart-daemon"
        case reboot
        case losePower = "lose-power"
        case damage
        case takeImage = "take-image"
        case rollBack = "roll-back"
        case sleep
        case clock
    }

    public var what: What
    public var numbers: [Int]

    public init(_ what: What, _ numbers: Int...) { (self.what, self.numbers) = (what, numbers) }

    /// The number at this place; 0 if there are fewer.
    func number(_ index: Int) -> Int { index < numbers.count ? numbers[index] : 0 }

    /// How often each kind of step is drawn, and the ranges of its numbers.
    static let table: [(what: What, weight: Int, ranges: [ClosedRange<Int>])] = [
        (.settle, 60, []), (.turn, 80, []), (.next, 220, [0...6]), (.pass, 200, [0...11]),

        (.publish, 150, [0...1, 0...3, 0...2]), (.send, 20, [0...1, 0...3, 0...2, 2...6]),
        (.publishLarge, 16, [0...1, 0...3, 0...2, 1...20]),
        (.subscribe, 6, [0...1]), (.unsubscribe, 2, [0...1]),
        (.attach, 10, [0...1, 0...1]), (.detach, 4, [0...1, 0...1]), (.acknowledge, 20, [0...1, 0...1, 0...3]),
        (.endConsumer, 1, [0...1, 0...1]), (.putPublication, 4, [0...1, 0...2]),
        (.removePublication, 2, [0...1, 0...2]), (.retry, 3, [0...1]), (.drop, 2, [0...1]),
        (.dropInFlight, 8, [0...1, 0...2]),
        (.connect, 12, [0...1]), (.disconnect, 4, [0...1]), (.reconnect, 6, [0...1, 0...2]),
        (.switchRoom, 3, [0...1, 0...1]),

        (.foreign, 50, [0...1, 0...2, 0...2]), (.flawed, 8, [0...1, 0...3, 0...2]),
        (.publishWithKey, 24, [0...1, 0...5, 0...1]), (.hog, 2, [0...1, 10...60]),

        (.cut, 10, [0...1]), (.mend, 16, [0...1]), (.move, 6, [0...1]), (.moveUnnoticed, 4, [0...1]),
        (.silence, 7, [0...1]), (.halfOpen, 6, [0...1, 0...1]), (.unsilence, 14, [0...1]),
        (.latency, 6, [0...1, 0...4]), (.slowUplink, 6, [0...1, 0...3]), (.piece, 5, [0...1, 0...5]),
        (.drip, 4, [0...1]), (.reset, 8, [0...1]),
        (.resetAfter, 14, [0...1, 0...1, 1...90]), (.dialFault, 10, [0...1, 0...12]), (.abortLoses, 3, [0...1, 0...1]),
        (.reorder, 3, [0...1, 0...1]), (.shift, 5, [0...1, 0...1, 0...4]), (.dropAddress, 5, [0...1, 0...2]),

        (.crash, 10, [0...1, 0...3]), (.serverImage, 5, [0...1]),
        (.restart, 16, [0...1]), (.hang, 5, [0...1]), (.resume, 9, [0...1]),
        (.forget, 5, [0...1, 0...1]), (.end, 14, [0...1, 0...1, 0...44]), (.refuse, 8, [0...1, 0...1, 0...44]),
        (.welcome, 14, [0...1]), (.refuseTopic, 6, [0...1, 0...60, 0...4]), (.refuseFilter, 5, [0...1, 0...60, 0...2]),
        (.redirect, 5, [0...1, 0...1, 0...2]), (.intrude, 4, [0...1, 0...1]), (.limits, 7, [0...1, 0...15]),
        (.lie, 3, [0...1]), (.acceptAndClose, 3, [0...1, 0...1]), (.holdAnswers, 7, [0...1, 0...1]),
        (.releaseAnswers, 16, [0...1, 1...3]), (.nonsense, 6, [0...1, 0...1, 0...9]),
        (.garbage, 2, [0...1, 0...1, 0...9]), (.wrongAnswer, 3, [0...1, 0...1]), (.again, 5, [0...1, 0...1, 0...1]),
        (.token, 5, [0...1, 0...9]),
        (.dislike, 5, [0...1, 0...11, 1...3]), (.dislikeFilter, 5, [0...1, 0...11, 0...1]),
        (.flood, 2, [0...1, 0...3, 300...2000]),

        (.diskFault, 8, [0...1, 0...4]), (.diskMended, 14, [0...1]), (.diskDelay, 6, [0...1, 0...3]),
        (.kill, 7, [0...1, 0...1]), (.killAfter, 7, [0...1, 1...12, 0...1]), (.start, 40, [0...1]),
        (.restartDaemon, 3, [0...1]), (.reboot, 1, [0...1]), (.losePower, 3, [0...1, 0...7]),
        (.damage, 1, [0...1, 0...1]), (.takeImage, 3, [0...1]), (.rollBack, 2, [0...1, 0...4]),
        (.sleep, 4, [0...1, 4...11, 0...1, 0...1]), (.clock, 4, [0...1, 0...5]),
    ]

    private static let total = table.reduce(0) { $0 + $1.weight }

    /// Each kind as often as its weight, so that drawing is one lookup.
    private static let urn: [Int] = table.indices.flatMap { Array(repeating: $0, count: table[$0].weight) }

    init(_ random: inout SplitMix64) {
        let row = Self.table[Self.urn[Int.random(in: 0..<Self.total, using: &random)]]
        what = row.what
        numbers = row.ranges.map { Int.random(in: $0, using: &random) }
    }
}

extension Step: LosslessStringConvertible {
    public var description: String { ([what.rawValue] + numbers.map(String.init)).joined(separator: " ") }

    public init?(_ text: String) {
        let words = text.split(separator: " ")
        guard let first = words.first, let what = What(rawValue: String(first)) else { return nil }
        self.what = what
        numbers = words.dropFirst().compactMap { Int($0) }
        guard numbers.count == words.count - 1 else { return nil }
    }
}

/// A run as a value: its world, and what happens there.
public struct Schedule: Hashable, Sendable {
    public var world: World
    public var steps: [Step]
    /// The seed of the daemons' own random numbers.
    public var seed: UInt64

    public init(world: World, steps: [Step], seed: UInt64) {
        (self.world, self.steps, self.seed) = (world, steps, seed)
    }

    public init(seed: UInt64, steps count: Int) {
        var random = SplitMix64(seed: seed)
        self.seed = seed
        world = World(&random)
        steps = (0..<count).map { _ in Step(&random) }
    }
}

extension Schedule: LosslessStringConvertible {
    /// One line for the world, one for each step.
    public var description: String {
        (["world \(world)", "seed \(seed)"] + steps.map(\.description)).joined(separator: "\n") + "\n"
    }

    /// Skips empty lines, and those that begin with `#`.
    public init?(_ text: String) {
        self.init(world: World(), steps: [], seed: 0)
        for line in text.split(separator: "\n") where !line.hasPrefix("#") {
            if line == "world" || line.hasPrefix("world ") {
                guard let world = World(String(line.dropFirst(6))) else { return nil }
                self.world = world
            } else if line.hasPrefix("seed "), let seed = UInt64(line.dropFirst(5)) {
                self.seed = seed
            } else if let step = Step(String(line)) {
                steps.append(step)
            } else {
                return nil
            }
        }
    }
}
