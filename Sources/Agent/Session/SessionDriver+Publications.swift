import ControlAPI
import DurableStore
import MQTT
import NIOCore
import Session
import SessionCore

// What programs ask about the session's publications.

extension SessionDriver {
    /// Returns when the publication is durable, whether or not the server has it yet.
    func putPublication(
        _ parameters: PublicationPutMethod.Parameters
    ) async throws(RPCError) -> PublicationPutMethod.Result {
        if let failure = await surroundings.commits.failure {
            throw .notCommitted("the publication", because: failure.description)
        }
        try checkRunning()
        let publication = try ask { session throws(RPCError) in try session.publication(parameters) }
        if let failure = await store(.putPublication(publication)) {
            throw .notCommitted("the publication", because: failure.description)
        }
        return .init(state: session.publications[publication.topic].map { .init($0.state) } ?? .pending)
    }

    /// Returns when the removal is durable, whether or not the server knows about it yet.
    func removePublication(
        _ parameters: PublicationRemoveMethod.Parameters
    ) async throws(RPCError) -> PublicationRemoveMethod.Result {
        try checkRunning()
        guard let entry = session.publications[parameters.topic] else {
            throw .unknownPublication(
                parameters.topic, of: name.description, among: session.publications.entries.map(\.publication.topic))
        }
        store([.removePublication(parameters.topic)])
        try await everythingDurable("the removal")
        let isHeld = entry.topic.map { session.publications.removing.contains($0) } ?? false
        return .init(state: isHeld ? .removing : .removed)
    }

    func publicationList() -> PublicationListMethod.Result {
        let isDisconnected = session.state == .disconnected && session.machine.reason.code.isDisconnectAskedFor
        let wanted = session.publications.entries.map { entry in
            var listed = ListedPublication(
                topic: entry.publication.topic, qos: entry.publication.qos, state: .init(entry.state),
                since: entry.publication.since)
            // The last message on the topic and its deletion may both have been lost.
            if isDisconnected, let topic = entry.topic, session.publications.retained.contains(topic) {
                listed.state = .kept
            }
            listed.payload = MessagePayload(bytes: Array(entry.publication.payload.readableBytesView))
            listed.properties = MessageProperties(entry.publication.properties)
            listed.serverTopic = entry.topic
            if case .refused(let code, _) = entry.state, listed.state == .refused {
                listed.reasonCode = Int(code.rawValue)
                listed.message = code.description
            }
            return listed
        }
        let removing = session.publications.removing.map { topic in
            var listed = ListedPublication(topic: topic, qos: nil, state: .removing, since: nil)
            listed.serverTopic = topic
            return listed
        }
        return .init(publications: wanted + removing)
    }

    /// Makes a change durable, then applies it. Changes are applied in the order of the calls.
    ///
    /// - Returns: the store's error, if it refused the change.
    private func store(_ change: SessionChange) async -> StoreError? {
        await withCheckedContinuation { continuation in
            let isAnswered = NIOLoopBoundBox(false, eventLoop: eventLoop)
            store([change]) { error in
                guard !isAnswered.value else { return }
                isAnswered.value = true
                continuation.resume(returning: error)
            }
        }
    }

    /// - Parameter completion: called with `nil` when everything is durable; called with the error before that, if
    ///   something is refused.
    func store(
        _ changes: [SessionChange], _ completion: @escaping @Sendable (StoreError?) -> Void = { _ in }
    ) {
        for case .putPublication(let publication) in changes { ask { $0.arrive(publication) } }
        commit(changes, refused: completion) { [weak self] outcome in
            self?.assumeIsolated { $0.run(.stored(changes, isComplete: outcome == .committed)) }
            completion(nil)
        }
    }
}

extension PublicationState {
    init(_ state: Publications.State) {
        self =
            switch state {
            case .pending, .sending: .pending
            case .published: .published
            case .refused: .refused
            }
    }
}
