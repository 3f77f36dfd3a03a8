import SessionCore

/// What happened to the host's clocks between two looks.
public enum ClockChange: Hashable, Sendable {
    /// The host was suspended for this long, a second or more.
    case slept(Duration)
    /// The wall clock was set by this much, a second or more; negative when it was set back.
    case stepped(by: Duration)
}

/// Distinguishes the host's sleep from a mere step of its wall clock.
///
/// While the host sleeps, `CLOCK_BOOTTIME` advances and `CLOCK_MONOTONIC` does not, and the wall clock advances with
/// `CLOCK_BOOTTIME`; nothing else does that. Only a step moves the wall clock against `CLOCK_BOOTTIME`: slewing moves
/// all three alike.
public struct ClockClassifier: Hashable, Sendable {
    /// Smaller changes are not reported.
    public static let least = Duration.seconds(1)

    private var asleep: Duration
    private var wallAtBoot: Duration

    /// - Parameter reading: the clocks at the first look.
    public init(_ reading: ClockReading) {
        asleep = Self.asleep(reading)
        wallAtBoot = Self.wallAtBoot(reading)
    }

    /// Looks at the clocks.
    /// - Returns: what happened since the previous look; steps too small to report add up.
    public mutating func handle(_ reading: ClockReading) -> [ClockChange] {
        var changes: [ClockChange] = []
        let slept = Self.asleep(reading) - asleep
        asleep = Self.asleep(reading)
        if slept >= Self.least { changes.append(.slept(slept)) }
        let step = Self.wallAtBoot(reading) - wallAtBoot
        if step >= Self.least || step <= .zero - Self.least {
            wallAtBoot += step
            changes.append(.stepped(by: step))
        }
        return changes
    }

    private static func asleep(_ reading: ClockReading) -> Duration {
        .nanoseconds(reading.boot.nanoseconds) - reading.awake
    }

    private static func wallAtBoot(_ reading: ClockReading) -> Duration {
        reading.wall - .nanoseconds(reading.boot.nanoseconds)
    }
}
