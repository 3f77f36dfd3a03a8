import NIOCore

// Lines to the peer: they are given to the kernel in pieces, one at a time, and count until it has taken them.
extension ControlConnection {
    func account(_ bytes: Int, isNotification: Bool = false) {
        schedule { [id] in $0.wrote(bytes, isNotification: isNotification, to: id, at: $1) }
    }

    func unaccount(_ bytes: Int) {
        guard bytes > 0 else { return }
        schedule { [id] in $0.read(bytes, by: id, at: $1) }
    }

    func holdBack(_ bytes: Int) {
        schedule { [id] in $0.heldBack(bytes, of: id, at: $1) }
    }

    func release(_ bytes: Int) {
        guard bytes > 0 else { return }
        schedule { [id] in $0.released(bytes, of: id, at: $1) }
    }

    func write(_ line: [UInt8], isNotification: Bool = false) {
        guard channel.isActive, !line.isEmpty else { return }
        account(line.count, isNotification: isNotification)
        output.append(line)
        planFlush()
    }

    func planFlush() {
        guard !output.isFlushPlanned else { return }
        output.isFlushPlanned = true
        // Once for everything that is answered at the same time, as by one commit.
        channel.eventLoop.execute { self.assumeIsolated { $0.flush() } }
    }

    private func flush() {
        output.isFlushPlanned = false
        pump()
    }

    /// Gives the kernel the next piece, once it has taken the last one.
    func pump() {
        guard !output.isPumping else { return }
        output.isPumping = true
        defer { output.isPumping = false }
        endAnswered()
        while !output.isWriting, channel.isActive, let piece = output.nextPiece() {
            output.isWriting = true
            let count = piece.readableBytes
            channel.writeAndFlush(piece).whenComplete { [weak self] _ in
                self?.assumeIsolated { $0.written(count) }
            }
        }
    }

    private func written(_ bytes: Int) {
        output.isWriting = false
        guard !isClosed else { return }
        unaccount(bytes)
        reportDropped()
        resumeConsumers()
        pump()
        closeWhenDone()
    }

    /// Gives back what the answered calls held.
    private func endAnswered() {
        let answered = output.takeAnswered()
        guard answered.count > 0 else { return }
        schedule { [id] scheduler, now in
            scheduler.end(
                .message, count: answered.count, bytes: answered.bytes, answer: answered.reserved, of: id)
            scheduler.wrote(answered.written, to: id, at: now)
        }
        reportDropped()
        closeWhenDone()
    }
}
