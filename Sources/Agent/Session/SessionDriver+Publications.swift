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
        try checkRunning()
        try requireStore(for: "the publication")
        let publication = try ask { session throws(RPCError) in try session.publication(parameters) }
        if let failure = await store(.putPublication(publication)) {
            throw .notCommitted("the publication", because: failure.description)
        }
        let entry = session.publications[publication.topic]
        return .init(state: entry.map { session.publicationState(of: $0) } ?? .pending)
    }

    /// Returns when the removal is durable, whether or not the server knows about it yet.
    func removePublication(
        _ parameters: PublicationRemoveMethod.Parameters
    ) async throws(RPCError) -> PublicationRemoveMethod.Result {
        try checkRunning()
        try requireStore(for: "the removal")
        guard let entry = session.publications[parameters.topic] else {
            throw .unknownPublication(
                parameters.topic, of: name.description,
                among: session.publications.entries.lazy.map(\.publication.topic))
        }
        store([.removePublication(parameters.topic)])
        try await everythingDurable("the removal")
        let isHeld = entry.topic.map { session.publications.removing.contains($0) } ?? false
        return .init(state: isHeld ? .removing : .removed)
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
