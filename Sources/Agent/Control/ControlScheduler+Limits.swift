import SessionCore

extension ControlScheduler {
    /// How much the connections of the control socket may hold, and for how long.
    struct Limits {
        var admission = Admission.Limits()
        /// How many bytes every connection may hold, and how many all of them may hold beyond that.
        var allowance = 64 << 10
        /// Half of it, the share of a user alone, is the longest line and two ordinary ones, so that a program that does not
        /// finish the longest does not keep the user's others from theirs.
        var pool = 52 << 20
        /// How many bytes are read ahead of the calls that run.
        var readAhead = 32 << 10
        /// With more bytes of unread answers, no call begins for the peer.
        var unread = 32 << 10
        /// The same while there are unread notifications as well. Programs that answer or acknowledge each message before
        /// they read on come to the answers only behind them; as many as a durable consumer may be given fit.
        var unreadAmongNotifications = 256 << 10
        /// With more unread bytes than this, notifications are dropped if the peer has more than half of what its user may
        /// still borrow, or if the longest line of another program would not fit. A single one is written whatever its
        /// length.
        var unreadNotifications = 1 << 20
        /// The length of an ordinary line, and of the longest line.
        var line = 1 << 20
        var longestLine = 24 << 20
        /// How much the one connection that may exceed the shares may hold for its lines and calls: the longest line, an
        /// ordinary one and the longest answer.
        var exempt = 30 << 20
        /// What a call holds besides its line.
        var call = 512
        /// The weight at which a turn ends, and that at which a pass ends. The call or turn that reaches it is still
        /// completed.
        var turn = 16 << 10
        var pass = 128 << 10
        /// The most that a call weighs: longer ones are prepared elsewhere, and bounded by their memory.
        var heaviest = 64 << 10
        /// How many bytes of messages may wait for their commit at once. A connection that has none waiting may always
        /// have one.
        var uncommitted = 2 << 20
        /// How many reads of the disk run at once.
        var reads = 2
        /// For a connection that holds memory others wait for: what its peer must have read in this time, unless it has
        /// read everything.
        var standstill = Pace(patience: .seconds(30), progress: 1 << 20)
        /// For an unfinished line that others wait for: what must arrive of it in this time.
        var unfinishedLine = Pace(patience: .seconds(2), progress: 64 << 10)
    }

    /// How slow is too slow.
    struct Pace {
        var patience: Duration
        /// Bytes that must move within the patience.
        var progress: Int
    }
}
