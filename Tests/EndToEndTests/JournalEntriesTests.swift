import Foundation
import Support
import Systemd
import Testing

extension EndToEnd {
    /// Every text of the catalog as `journalctl -x` shows it, with an entry from the journal of an installed service.
    @Suite(
        "Journal", .timeLimit(.minutes(30)),
        .enabled(if: Container.obstacle == nil || LabRequirements.isAllRequired, "cannot run here"))
    struct JournalTests {
        /// What cannot happen in a container: its clock is that of the host, which does not sleep. The test writes
        /// these entries itself; `SleepWatchTests` and `SessionLogTests` check what the daemon writes.
        private static let unseen = [MessageID.clockStepped, .resumedFromSleep]

        private static func isThere(_ id: MessageID, _ container: Container) async throws -> Bool {
            try await container.run("journalctl", "--sync")
            let found = try await container.finish(
                "journalctl", "-q", "-n", "1", "-o", "cat", "--no-pager", "MESSAGE_ID=\(id)")
            return !found.output.isEmpty
        }

        private func seen(_ id: MessageID, in container: Container) async throws {
            try await until("the journal has the entry \(id)") { try await Self.isThere(id, container) }
        }

        private func session(_ name: String, _ lines: String..., in container: Container) throws {
            try container.write(
                "/etc/holdfast/sessions.d/\(name).toml", (["user = \"\(name)\""] + lines).joined(separator: "\n") + "\n"
            )
        }

        @Test func `journalctl explains every entry, with the values of a record`() async throws {
            try await Container.run(programs: DaemonProcess.programs) { container in
                let here = "endpoints = [\"mqtt://localhost:1883\"]"
                try session("main", here, in: container)
                try container.write(
                    "/etc/holdfast/holdfast.toml",
                    "[access]\nobserve = [\"anyone\"]\nmessage = []\n[log]\nlevel = \"debug\"\n")
                // One server accepts messages for open/# only, the second requires a password, and the third refuses
                // every subscription.
                try container.write(
                    "/etc/mosquitto/conf.d/test.conf",
                    """
                    per_listener_settings true
                    listener 1883
                    allow_anonymous true
                    acl_file /etc/mosquitto/acl
                    listener 1884
                    allow_anonymous false
                    listener 1885
                    allow_anonymous true
                    plugin /usr/lib/x86_64-linux-gnu/mosquitto_dynamic_security.so
                    plugin_opt_config_file /etc/mosquitto/none.json

                    """)
                try container.write(
                    "/etc/mosquitto/acl", "topic readwrite open/#\ntopic readwrite $SYS/#\n")
                // It is stopped for as long as the network takes.
                try container.write("/etc/systemd/system/holdfast.service.d/test.conf", "[Service]\nWatchdogSec=0\n")
                try await container.run("systemctl", "daemon-reload")
                try container.write(
                    "/etc/mosquitto/none.json",
                    #"{"defaultACLAccess": {"subscribe": false, "publishClientSend": true}}"#)
                try await container.run("systemctl", "restart", "mosquitto")
                try await container.run("systemctl", "enable", "--now", "holdfast")
                try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
                try await happen(here, in: container)
                try await damage(in: container)

                for id in Self.unseen {
                    let references = try #require(Catalog.entries[id.description]).references
                    let fields = Set(references).map { "\($0)=main" }.joined(separator: "\n")
                    try container.write(
                        "/tmp/entry",
                        "MESSAGE_ID=\(id)\nMESSAGE=as it would be\nSYSLOG_IDENTIFIER=holdfastd\n\(fields)\n")
                    try await container.shell("logger --journald </tmp/entry")
                }
                for id in MessageID.allCases {
                    try await seen(id, in: container)
                    let shown = try await container.run("journalctl", "-x", "--no-pager", "MESSAGE_ID=\(id)")
                    let entry = try #require(Catalog.entries[id.description])
                    let subject = try #require(entry.headers["Subject"])
                    #expect(shown.contains("Subject: \(subject.prefix { $0 != "@" })"), "\(shown)")
                    #expect(shown.contains("Defined-By: Holdfast"), "\(shown)")
                    // systemd shows the name of a field that a record does not have.
                    for field in Set(entry.references + ["HOLDFAST_", "@"]) {
                        #expect(!shown.contains(field), "a record does not have \(field): \(shown)")
                    }
                }
            }
        }

        /// Causes the events that come from servers, programs, people and the network.
        private func happen(_ here: String, in container: Container) async throws {
            try await container.run("systemctl", "stop", "mosquitto")
            try await seen(.sessionLost, in: container)
            // The message has expired when the server is back.
            try await container.run("holdfastctl", "publish", "main", "open/late", "x", "--expiry", "1s")
            try await seen(.messageDropped, in: container)
            try await container.run("systemctl", "start", "mosquitto")
            try await container.run("holdfastctl", "wait", "main", "--timeout", "3min")
            // The payload is not text although the message says so.
            try await container.shell(
                """
                (timeout 600 holdfastctl subscribe main 'open/#' >/dev/null & echo $! >/tmp/subscriber)
                until holdfastctl status main --json | grep -q '"filter":"open/#"'; do sleep 0.1; done
                printf '\\377\\376' >/tmp/bytes
                mosquitto_pub -V 5 -t open/a -f /tmp/bytes -D publish payload-format-indicator 1
                """)
            try await seen(.messageRefused, in: container)
            try await container.shell("kill $(cat /tmp/subscriber)")
            // The server refuses the topic.
            try await container.run("holdfastctl", "publish", "main", "closed/a", "x")
            try await seen(.itemQuarantined, in: container)
            #expect(
                try await container.finish(
                    "setpriv", "--reuid", "65534", "--regid", "holdfast", "--clear-groups", "--", "holdfastctl",
                    "disconnect", "main"
                ).ending == .exited(5))
            try await seen(.accessDenied, in: container)
            try session("deaf", "endpoints = [\"mqtt://localhost:1885\"]", in: container)
            try await container.run("holdfastctl", "reload")
            try await container.run("holdfastctl", "wait", "deaf", "--timeout", "3min")
            let refused = try await container.finish("holdfastctl", "subscribe", "deaf", "a/#")
            #expect(refused.ending == .exited(1) && refused.errors.contains("refused the subscription"), "\(refused)")
            try await seen(.subscriptionRefused, in: container)

            try await container.shell(
                "printf '#!/bin/sh\necho \\047{\"token\": \"x\", \"expiresIn\": 12}\\047\n' >/usr/local/bin/helper; chmod 755 /usr/local/bin/helper"
            )
            try session("away", "endpoints = [\"mqtt://localhost:1\"]", in: container)
            try session("refused", "endpoints = [\"mqtt://localhost:1884\"]", in: container)
            try session("brief", here, "password = \"exec:/usr/local/bin/helper\"", in: container)
            try session("far", "endpoints = [\"mqtt://10.9.8.7\"]", in: container)
            try session("broken", "endpoint = 1", in: container)
            _ = try await container.finish("holdfastctl", "reload")
            for id in [MessageID.reloadDone, .stillTrying, .credentialRejected, .failed] {
                try await seen(id, in: container)
            }
            try session("main", "endpoints = 1", in: container)
            _ = try await container.finish("holdfastctl", "reload")
            try await seen(.reloadRefused, in: container)
            try session("main", here, in: container)
            try await container.run("rm", "/etc/holdfast/sessions.d/broken.toml")
            try await container.run("holdfastctl", "reload")
            try await seen(.credentialExpiring, in: container)
            // Another device of the user is in the room when the session comes back, so the session yields.
            try session(
                // It looks into the room for at most half of these times.
                "guest", here, "room = \"r\"", "room-prefix = \"open\"", "[reconnect]\nkick = \"yield\"",
                "[timeouts]\ndial = \"1min\"\nauthenticate = \"1min\"", in: container)
            try await container.run("holdfastctl", "reload")
            try await container.run("holdfastctl", "wait", "guest", "--timeout", "3min")
            try await container.shell(
                """
                mosquitto_pub -V 5 -q 1 -r -t open/r/presence/guest/second \\
                    -m '{"user":"guest","device":"second","state":"online","since":"2026-11-20T09:12:44Z","session":"guest"}'
                """)
            try await container.run("systemctl", "restart", "mosquitto")
            try await seen(.displaced, in: container)

            // A network appears, and then more addresses change than the socket has room for while the daemon is
            // stopped.
            let network = "/etc/systemd/network/lo.network"
            try container.write(network, "[Match]\nName=lo\n[Network]\nAddress=10.9.8.7/32\n")
            try await container.run("systemctl", "start", "systemd-networkd")
            try await seen(.pathChanged, in: container)
            let many = (0..<4000).map { "Address=10.\(100 + $0 / 250).\($0 % 250).1/32\n" }.joined()
            try container.write(network, "[Match]\nName=lo\n[Network]\nAddress=10.9.8.7/32\n\(many)")
            try await container.shell(
                """
                pid=$(systemctl show --property MainPID --value holdfast)
                kill -STOP $pid
                systemctl restart systemd-networkd
                timeout 600 sh -c 'until networkctl status lo | grep -q "(configured)"; do sleep 0.2; done'
                kill -CONT $pid
                """)
            try await seen(.netlinkOverrun, in: container)
        }

        /// Causes the events that come from disks.
        private func damage(in container: Container) async throws {
            try await container.run("systemctl", "stop", "holdfast.socket", "holdfast")
            try await seen(.stopping, in: container)
            try await container.shell(
                "dd if=/dev/urandom of=/var/lib/holdfast/holdfast.db bs=4096 count=2 conv=notrunc status=none")
            try await container.run("systemctl", "start", "holdfast")
            try await seen(.storeReplaced, in: container)

            try await container.run("systemctl", "stop", "holdfast.socket", "holdfast")
            try await container.shell(
                "mount -t tmpfs -o size=3m,mode=700,uid=holdfast,gid=holdfast tmpfs /var/lib/holdfast")
            try session("main", "endpoints = [\"mqtt://localhost:1\"]", in: container)
            try await container.run("systemctl", "start", "holdfast")
            try await container.shell(
                """
                head -c 200000 /dev/zero | tr '\\0' x >/tmp/large
                for n in $(seq 1 40); do holdfastctl publish main open/b --file /tmp/large --timeout 2min || break; done
                """)
            try await seen(.storeFull, in: container)
        }
    }
}
