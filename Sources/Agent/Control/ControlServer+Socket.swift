import Glibc
import Logging
import NIOCore
import NIOPosix
import SessionCore

// The socket's file while the daemon runs. If somebody removes it, no program can connect any more, so it is made again.

extension ControlServer {
    /// The file of the socket that is served.
    struct SocketFile: ~Copyable {
        let path: String
        let group: gid_t?
        /// `nil` when the file at the path is not that of the socket that is served.
        var identity: ControlSocket.FileIdentity?
        /// Whether systemd passed the socket. Then its file stays when the daemon stops.
        var isSystemds: Bool
        var watch: SocketWatch?
        /// Whether it was reported that the socket cannot be made again, or cannot be watched.
        var isTold = false

        var isWatched: Bool { watch != nil }
    }

    /// Looks whether the socket's file is at its path, now and whenever the kernel reports a change.
    func keepSocket() {
        guard let path = file?.path else { return }
        watchSocket(for: .removal)
        if let present = ControlSocket.FileIdentity(path), present == file?.identity {
            let error = errno
            guard file?.isWatched == false else { return }
            tellOnce("the control socket \(path) cannot be watched: \(systemText(error))")
            return
        }
        // No program can connect to the old one.
        file?.identity = nil
        listener?.close(promise: nil)
        listener = nil
        watchSocket(for: .room)
        do throws(ControlSocket.Failure) {
            let descriptor = try ControlSocket.listen(at: path, group: file?.group, replacesStale: false)
            let identity = ControlSocket.FileIdentity(path)
            file?.identity = identity
            file?.isSystemds = false
            Task { await serve(descriptor, madeAgainAt: path, as: identity) }
        } catch {
            tellLost("\(error)")
        }
    }

    private func serve(
        _ descriptor: CInt, madeAgainAt path: String, as identity: ControlSocket.FileIdentity?
    ) async {
        do {
            let channel = try await bootstrap(autoRead: true).withBoundSocket(descriptor).get()
            // The daemon may be stopping by now, or the file be gone again.
            guard file?.path == path, file?.identity == identity else { return channel.close(promise: nil) }
            listener = channel
            file?.isTold = false
            logger.warning("the control socket \(path) was removed by somebody, and was made again")
            keepSocket()
        } catch {
            ControlSocket.remove(path, madeAs: identity)
            tellLost("\(error)")
        }
    }

    private func watchSocket(for expectation: SocketWatch.Expectation) {
        guard let path = file?.path else { return }
        file?.watch = SocketWatch(path, for: expectation) { [weak self] in
            guard let self else { return }
            // The first kind may come from a stop of both units: the daemon is told to stop after its socket is removed. The
            // second kind can be frequent: it is about a whole directory.
            let delay: TimeAmount = expectation == .removal ? .milliseconds(500) : .seconds(1)
            eventLoop.scheduleTask(in: delay) { self.assumeIsolated { $0.keepSocket() } }
        }
    }

    private func tellLost(_ why: String) {
        tellOnce(
            "the control socket was removed by somebody and cannot be made again, so no program can connect until that is possible: \(why)"
        )
    }

    private func tellOnce(_ sentence: String) {
        guard file?.isTold == false else { return }
        file?.isTold = true
        logger.error("\(sentence)")
    }
}
