import NIOCore
import NetworkPath
import ServiceLifecycle
import Systemd

/// Tells systemd that the daemon is alive, as long as the loop, all sessions and the network watcher respond: what a
/// restart can mend.
///
/// The store is not asked. A disk that stands still does not move again because the daemon is restarted, and until it
/// does, the sessions stay connected. A store that hung by a mistake of ours could not be told from that.
/// ``StoreWatch`` reports both.
struct Watchdog {
    var daemon: Daemon
    var interval: Duration

    func run() async {
        try? await cancelWhenGracefulShutdown {
            while true {
                await answered()
                daemon.notifications.tell(.alive)
                try await daemon.eventLoop.sleep(for: interval / 2)
            }
        }
    }

    /// Returns when everything that is asked has responded.
    func answered() async {
        await daemon.registry.answer()
        _ = await daemon.network.watcher.snapshot()
    }
}
