import SessionCore

/// Since when a connection of the control socket holds more memory than it should and makes no progress.
struct Standstill {
    private var since: Instant?
    /// How many bytes have moved since.
    private var movedBytes = 0
    /// The same for an unfinished line, which has less time.
    private var unfinishedSince: Instant?
    /// How many bytes of that line had arrived then.
    private var arrivedBytes = 0

    /// When the connection may be closed if others wait for its memory.
    func deadline(_ limits: ControlScheduler.Limits) -> Instant? {
        [
            since?.advanced(by: limits.standstill.patience),
            unfinishedSince?.advanced(by: limits.unfinishedLine.patience),
        ]
        .compactMap { $0 }.min()
    }

    /// So many bytes were read by the peer or taken from it.
    mutating func moved(_ bytes: Int, holdsTooMuch: Bool, _ limits: ControlScheduler.Limits, at now: Instant) {
        movedBytes += bytes
        if !holdsTooMuch {
            since = nil
        } else if movedBytes >= limits.standstill.progress || since == nil {
            since = now
            movedBytes = 0
        }
    }

    /// So many bytes of an unfinished line have arrived in all.
    mutating func arrived(_ bytes: Int, holdsTooMuch: Bool, _ limits: ControlScheduler.Limits, at now: Instant) {
        if !holdsTooMuch {
            unfinishedSince = nil
        } else if unfinishedSince == nil || bytes >= arrivedBytes + limits.unfinishedLine.progress {
            unfinishedSince = now
            arrivedBytes = bytes
        }
    }
}
