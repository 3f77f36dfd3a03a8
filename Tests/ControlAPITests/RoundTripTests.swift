import Testing

@testable import ControlAPI

/// The formats of holdfast-rpc(7) as literal JSON texts, which are read and written again as the same JSON value.
struct RoundTripTests {
    private static let status = """
        { "session": "main", "state": "connected", "since": "2026-11-20T09:12:44.120Z",
          "phase": null, "awaitsCredential": null, "awaitsTurn": null, "mode": null, "resumed": true, "attempt": 0, "retryIn": null, "lost": false, "doubt": null,
          "reason": { "code": "path-gained", "group": "network", "terminal": false,
                      "serverCode": null, "message": "…", "hint": "…", "lastFailure": null },
          "endpoint": "mqtts://broker.example:8883", "proxy": "http://proxy.example:3128",
          "peer": "203.0.113.9:3128", "tls": "TLSv1.3", "protocol": "5",
          "path": { "interface": "wlan0", "type": "wifi", "source": "192.168.1.20", "gateway": "192.168.1.1" },
          "network": { "interfaces": ["wlan0"], "types": [], "metered": "avoid" },
          "user": "edge-42", "device": "…", "room": "plant-7", "clientID": "edge-42", "presenceRefused": null,
          "quality": "excellent", "rtt": 0.023, "jitter": 0.002, "lastHeard": 4.1,
          "granted": { "sessionExpiry": 3600, "keepAlive": 15, "maximumQoS": 2, "retain": true, "receiveMaximum": 20,
                       "maximumPacketSize": 268435455, "wildcardSubscriptions": true, "sharedSubscriptions": true },
          "subscriptions": [
            { "filter": "orders/#", "qos": 2, "state": "refused", "grantedQoS": null, "reasonCode": 135,
              "message": "not authorized (0x87)", "since": "2026-11-20T09:12:44.120Z",
              "retryAt": "2026-11-20T09:22:44.120Z" } ],
          "outbox": { "queued": 0, "inFlight": 0, "quarantined": 0, "bytes": 0, "oldest": null,
                      "unknown": null },
          "inbox": { "messages": 3, "bytes": 90, "withheld": 1, "dropped": 0, "consumers": [
            { "name": "billing", "filter": "orders/#", "qos": 2, "attached": true, "messages": 3, "bytes": 90,
              "refused": null, "missed": 7 } ] },
          "counters": { "attempts": 14, "connects": 13, "resumes": 11, "outages": 12, "longestOutage": 41.2,
                        "published": 5120, "received": 88, "dropped": 3, "refused": 2 },
          "configurationError": null, "storeFailure": null, "readFailure": null,
          "tlsFilesError": null }
        """

    private func roundTrip<Value: Codable>(
        _ type: Value.Type, _ text: String, sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> Value {
        let value = try JSONValue(parsing: Array(text.utf8)[...])
        let read = try ParameterDecoder.decodeLeniently(type, from: value)
        let line = try #require(OutgoingLine.encode(read), sourceLocation: sourceLocation)
        #expect(try JSONValue(parsing: line[...]) == value, sourceLocation: sourceLocation)
        return read
    }

    @Test func `session status is read and written as documented`() throws {
        let status = try roundTrip(SessionStatus.self, Self.status)
        #expect(status.state == .connected)
        #expect(status.since.rawValue == 1_795_165_964_120)
        #expect(status.phase == nil)
        #expect(status.path?.gateway == "192.168.1.1")
        #expect(status.counters.longestOutage == 41.2)
    }

    /// Compares the properties of a value, and of what it contains, with the members that are written.
    private static func expectWhole(_ value: Any, _ written: JSONValue, _ path: String) {
        let mirror = Mirror(reflecting: value)
        switch (mirror.displayStyle, written) {
        case (.optional?, _):
            if let wrapped = mirror.children.first?.value { expectWhole(wrapped, written, path) }
        case (.collection?, .array(let elements)):
            for (child, element) in zip(mirror.children, elements) { expectWhole(child.value, element, path + "[]") }
        case (.struct?, .object):
            for case (let label?, let child) in mirror.children {
                // The storage of an @OrNull property.
                let isWrapped = label.hasPrefix("_")
                let name = isWrapped ? String(label.dropFirst()) : label
                guard let member = written.members?[name] else {
                    Issue.record("\(path).\(name) is not written")
                    continue
                }
                let inner = isWrapped ? Mirror(reflecting: child).children.first?.value ?? child : child
                expectWhole(inner, member, "\(path).\(name)")
            }
        default: break
        }
    }

    @Test func `every property of a status is written`() throws {
        let value = try JSONValue(parsing: Array(Self.status.utf8)[...])
        let status = try ParameterDecoder.decodeLeniently(SessionStatus.self, from: value)
        let line = try #require(OutgoingLine.encode(status))
        Self.expectWhole(status, try JSONValue(parsing: line[...]), "status")
        let daemon = DaemonStatus(
            version: "1", pid: 1, since: Timestamp(rawValue: 0), sessions: .init(states: []), store: [:], netlink: [:])
        let text = try #require(OutgoingLine.encode(daemon))
        Self.expectWhole(daemon, try JSONValue(parsing: text[...]), "daemon")
    }

    @Test func `absent members of a status are written as null`() throws {
        let status = SessionStatus(session: "a", state: .disconnected, since: Timestamp(rawValue: 0))
        let line = try #require(OutgoingLine.encode(status))
        let members = try #require(try JSONValue(parsing: line[...]).members)
        #expect(members.count == 38)
        #expect(members["reason"] == .null)
        #expect(members["rtt"] == .null)
    }

    @Test func `a status with missing optional members and unknown ones is read`() throws {
        let text = """
            {"session":"a","state":"failed","since":"2026-01-01T00:00:00Z","attempt":0,"lost":false,"new":{"x":[1]},
             "subscriptions":[],"outbox":{"queued":1,"inFlight":0,"quarantined":0,"bytes":9},
             "inbox":{"messages":0,"bytes":0,"withheld":0,"dropped":0,"consumers":[]},
             "counters":{"attempts":1,"connects":0,"resumes":0,"outages":0,"published":0,"received":0,"dropped":0,
                "refused":0}}
            """
        let value = try JSONValue(parsing: Array(text.utf8)[...])
        let status = try ParameterDecoder.decodeLeniently(SessionStatus.self, from: value)
        #expect(status.state == .failed)
        #expect(status.outbox.queued == 1)
        #expect(status.counters.dropped == 0)
    }

    @Test func `the list of clients is read and written as documented`() throws {
        let result = try roundTrip(
            DaemonClientsMethod.Result.self,
            """
            { "clients": [ { "pid": 4242, "uid": 1000, "client": null, "roles": ["observe", "message"],
                "since": "2026-11-20T09:12:44.120Z", "calls": { "answered": 12, "inFlight": 1 }, "watches": 1,
                "sessions": [ { "session": "main", "subscriptions": 2, "consumers": ["billing"] } ],
                "unread": 0, "dropped": 3 } ] }
            """)
        #expect(result.clients.first?.sessions.first?.consumers == ["billing"])
    }

    @Test func `list and watch answers are read and written as documented`() throws {
        _ = try roundTrip(SessionListMethod.Result.self, #"{ "sessions": [ \#(Self.status) ] }"#)
        let watch = try roundTrip(
            SessionWatchMethod.Result.self,
            #"{ "watch": "w1", "snapshot": { "sessions": [ \#(Self.status) ] }, "sequence": 931, "epoch": "5f", "restarted": false }"#
        )
        #expect(watch.watch == WatchID(rawValue: "w1"))
    }

    @Test func `events are read and written with only their own members`() throws {
        let event = try roundTrip(
            SessionEvent.self,
            """
            {"watch":"w1","sequence":932,"time":"2026-11-20T09:12:44.120Z","session":"main","event":"state-changed",
             "from":"connected","state":"reconnecting","mode":"quick","phase":"resolving","attempt":1}
            """)
        #expect(event.from == .connected)
        #expect(event.mode == .quick)
        let unknown = try roundTrip(
            SessionEvent.self,
            #"{"watch":"w1","sequence":1,"time":"2026-11-20T09:12:44.120Z","session":"main","event":"invented-later"}"#)
        #expect(unknown.event.rawValue == "invented-later")
    }

    @Test func `unknown members and kinds of events are read`() throws {
        let text = """
            {"watch":"w1","sequence":7,"time":"2026-01-01T00:00:00Z","session":"a","event":"new-kind","new":{"x":[1]}}
            """
        let value = try JSONValue(parsing: Array(text.utf8)[...])
        let event = try ParameterDecoder.decodeLeniently(SessionEvent.self, from: value)
        #expect(event.event == SessionEvent.Kind(rawValue: "new-kind"))
        #expect(event.sequence == 7)
    }

    @Test func `the history is read and written as documented`() throws {
        let result = try roundTrip(
            SessionHistoryMethod.Result.self,
            """
            {"entries":[
             {"time":"2026-11-20T09:12:44.120Z","session":"main","from":"connected","to":"reconnecting",
              "phase":"waiting-for-network","mode":"quick","outage":null,"failures":null,
              "reason":{"code":"path-lost","group":"network","terminal":false,"serverCode":null,"message":"…",
                        "hint":null,"lastFailure":null}},
             {"time":"2026-11-20T09:12:47.620Z","session":"main","from":"reconnecting","to":"connected",
              "phase":null,"mode":"full","outage":3.5,
              "failures":{"attempts":14,"code":"dial-timeout","message":"…"},
              "reason":{"code":"path-gained","group":"network","terminal":false,"serverCode":139,"message":"…",
                        "hint":"…","lastFailure":{"code":"refused","group":"network","message":"…"}}}]}
            """)
        #expect(result.entries.map(\.outage) == [nil, 3.5])
        #expect(result.entries.first?.phase == .waitingForNetwork)
    }

    @Test(
        arguments: [
            ("{}", SessionHistoryMethod.Parameters(limit: 100)),
            (
                #"{"session":"a","since":"2026-11-20T09:12:44.120Z","until":"2026-11-21T00:00:00Z","limit":10000}"#,
                .init(
                    session: "a", since: Timestamp(rawValue: 1_795_165_964_120),
                    until: Timestamp(rawValue: 1_795_219_200_000), limit: 10_000)
            ),
            (#"{"limit":1}"#, .init(limit: 1)), (#"{"limit":0}"#, nil), (#"{"limit":10001}"#, nil),
            (#"{"since":"yesterday"}"#, nil), (#"{"before":1}"#, nil),
        ] as [(String, SessionHistoryMethod.Parameters?)])
    func `the parameters of the history are checked`(
        _ text: String, _ parameters: SessionHistoryMethod.Parameters?
    ) throws {
        let value = try JSONValue(parsing: Array(text.utf8)[...])
        guard let parameters else {
            let error = #expect(throws: RPCError.self) {
                try ParameterDecoder.decode(SessionHistoryMethod.Parameters.self, from: value)
            }
            #expect(error?.code == -32602)
            return
        }
        #expect(try ParameterDecoder.decode(SessionHistoryMethod.Parameters.self, from: value) == parameters)
    }

    @Test func `messages are read and written as documented`() throws {
        let result = try roundTrip(
            MessagePublishMethod.Result.self, #"{ "id": 81, "accepted": true, "delivered": false, "reasonCode": null }"#
        )
        #expect(result.id == 81)
        _ = try roundTrip(
            MessageSubscribeMethod.Result.self, #"{ "subscription": "s1", "grantedQoS": 1, "missed": 2, "epoch": "e" }"#
        )
        let text = try roundTrip(
            ReceivedMessage.self,
            """
            {"subscription":"s1","session":"main","id":3,"topic":"a/b","payload":"grüße","qos":1,"retain":false,
             "duplicate":true,"properties":{"contentType":"text/plain"}}
            """)
        #expect(text.payload.text == "grüße")
        let bytes = try roundTrip(
            ReceivedMessage.self,
            """
            {"subscription":"s1","session":"main","id":3,"topic":"a/b","payloadBase64":"/wA=","qos":0,"retain":true,
             "duplicate":false,"properties":null}
            """)
        #expect(bytes.payload.bytes == [0xFF, 0])
    }

    @Test func `daemon and network answers are read and written as documented`() throws {
        _ = try roundTrip(
            DaemonStatus.self,
            """
            {"version":"0.1.0","pid":7,"since":"2026-11-20T09:12:44.120Z","sessions":{"total":1,"connected":1,
             "connecting":0,"reconnecting":0,"disconnecting":0,"disconnected":0,"failed":0},"store":{"rows":4},
             "storeFailure":null,"netlink":{"overruns":0},"changedFiles":["/etc/holdfast/holdfast.toml"],
             "configurationDirectory":"/etc/holdfast",
             "configurationError":"/etc/holdfast/holdfast.toml:2:7: wrong",
             "absentSessions":[{"session":"old","messages":2,"bytes":40,"oldest":"2026-11-20T09:12:44.120Z",
              "consumers":1,"received":3,"publications":0}],
             "metricsFailure":null,"missingAccounts":["group:engineers"],"restartNeeded":null,
             "ignoredFiles":["/etc/holdfast/sessions.d/Pump_7.toml"]}
            """)
        _ = try roundTrip(
            DaemonReloadMethod.Result.self,
            """
            {"changed":["a"],"added":[],"removed":[],"kept":["b"],"changes":[{"session":null,
             "key":"log.level","from":"\\"info\\"","to":"\\"debug\\"","overriddenBy":"--log-level"}],
             "errors":[{"session":null,"file":"x.toml","line":3,"column":1,"message":"no"}],"leftBehind":[{"session":"c","message":"the server may keep 1 publication"}],
             "absentSessions":[{"session":"c","messages":1,"bytes":4,"oldest":null,"consumers":0,"received":0,
              "publications":0}]}
            """)
        let network = try roundTrip(
            NetworkStatus.self,
            """
            {"interfaces":[{"name":"wlan0","index":2,"type":"wifi","up":true,"carrier":true,"addresses":["10.0.0.2/8"],
               "defaultRoutes":["10.0.0.1"]}],
             "paths":[{"session":"main","endpoint":"mqtt://h:1883","interface":null,"type":null,"source":null,
               "gateway":null,"excluded":{"interface":"tun0","type":"vpn","source":"10.8.0.2","gateway":null}}],
             "changes":[{"time":"2026-11-20T09:12:44.120Z","class":"gained","session":"main","from":null,
               "to":{"interface":"wlan0","type":"wifi","source":"10.0.0.2","gateway":null}}],
             "counters":{"messages":9}}
            """)
        #expect(network.changes.first?.to?.interface == "wlan0")
    }

    @Test func `publications are read and written as documented`() throws {
        let result = try roundTrip(
            PublicationListMethod.Result.self,
            """
            {"publications":[
             {"topic":"~/a","serverTopic":"rooms/x/a","payload":"on","qos":1,"properties":{"contentType":"t"},
              "state":"refused","since":"2026-11-20T09:12:44.120Z","reasonCode":135,"message":"not authorized"},
             {"topic":"b","serverTopic":"b","payloadBase64":"/w==","qos":0,"state":"published",
              "since":"2026-11-20T09:12:44.120Z","reasonCode":null,"message":null},
             {"topic":"c","serverTopic":"c","qos":null,"state":"removing","since":null,"reasonCode":null,
              "message":null}]}
            """)
        #expect(result.publications.map(\.state) == [.refused, .published, .removing])
        #expect(result.publications.map(\.payload?.bytes) == [Array("on".utf8), [255], nil])
        let put = try roundTrip(
            PublicationPutMethod.Parameters.self,
            #"{"session":"main","topic":"~/a","payload":"on","qos":0,"properties":{"contentType":"t"}}"#)
        #expect(put.qos == .atMostOnce)
    }

    @Test func `queue answers are read and written as documented`() throws {
        let page = try roundTrip(
            MessageQueueListMethod.Result.self,
            """
            { "messages": [
              { "id": 7, "topic": "a", "qos": 1, "retain": false, "size": 12, "acceptedAt": "2026-11-20T09:12:44.120Z",
                "expiresAt": null, "state": "quarantined", "reasonCode": 135, "message": "not authorized" } ],
              "next": null }
            """)
        #expect(page.messages.first?.state == .quarantined)
        _ = try roundTrip(
            MessageQueueRetryMethod.Result.self,
            #"{ "retried": [ { "id": 7, "newID": 81 } ], "skipped": [], "more": false }"#)
        let dropped = try roundTrip(
            MessageQueueDropMethod.Result.self,
            """
            { "dropped": [7], "skipped": [ { "id": 8, "code": "in-flight", "message": "…", "hint": null } ],
              "more": true, "rest": { "consumers": 1, "received": 3, "publications": 2 } }
            """)
        #expect(dropped.skipped.first?.id == 8)
    }

    @Test(arguments: [
        (#"{"session":"a","ids":[1,2]}"#, MessageSelection.ids([1, 2])),
        (#"{"session":"a","all":"queued"}"#, .all(.queued)),
        (#"{"session":"a","all":"everything"}"#, .all(.everything)),
        (#"{"session":"a"}"#, nil), (#"{"session":"a","ids":[]}"#, nil), (#"{"session":"a","all":"in-flight"}"#, nil),
        (#"{"session":"a","ids":[1],"all":"queued"}"#, nil), (#"{"session":"a","all":true}"#, nil),
    ])
    func `a retry or drop names messages, or a state`(text: String, selection: MessageSelection?) throws {
        let value = try JSONValue(parsing: Array(text.utf8)[...])
        let parameters = try? ParameterDecoder.decode(MessageQueueParameters.self, from: value)
        #expect(parameters?.selection == selection)
        guard let parameters else { return }
        let line = try #require(OutgoingLine.encode(parameters))
        #expect(try JSONValue(parsing: line[...]) == value)
    }

    @Test func `sessions are counted by state`() {
        let counts = DaemonStatus.SessionCounts(states: [.connected, .failed, .connected, .reconnecting])
        #expect((counts.connected, counts.reconnecting, counts.failed, counts.total) == (2, 1, 1, 4))
        #expect((counts.connecting, counts.disconnecting, counts.disconnected) == (0, 0, 0))
    }

    @Test func `the names and roles of methods are those of the contract`() {
        let roles = Dictionary(uniqueKeysWithValues: ControlMethods.all.map { ($0.name, $0.role) })
        #expect(
            roles == [
                "rpc.hello": nil, "rpc.discover": nil, "daemon.status": .observe, "daemon.reload": .control,
                "daemon.clients": .control,
                "session.list": .observe,
                "session.status": .observe, "session.connect": .control, "session.disconnect": .control,
                "session.renewToken": .control, "session.simulate": .control,
                "session.reconnect": .control, "session.watch": .observe, "session.history": .observe,
                "session.switchRoom": .control, "room.participants": .observe,
                "message.publish": .message, "message.subscribe": .message, "message.unsubscribe": .message,
                "message.ack": .message,
                "session.unwatch": .observe, "publication.list": .observe, "publication.put": .message,
                "publication.remove": .message, "network.status": .observe, "message.queue.list": .observe,
                "message.queue.retry": .message, "message.queue.drop": .control,
                "check.run": .observe, "daemon.metrics": .observe, "daemon.logLevel": .control,
            ])
    }
}
