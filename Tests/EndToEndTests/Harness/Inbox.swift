import ControlAPI
import HoldfastClient
import Support

/// The messages that a live consumer has received.
actor Inbox {
    private(set) var messages: [ReceivedMessage] = []
    private var reader: Task<Void, Never>?
    private var ending: (any Error)?

    init(_ subscription: MessageSubscription) async {
        reader = Task { [weak self] in
            do {
                for try await case .message(let message) in subscription { await self?.add(message) }
            } catch {
                await self?.end(error)
            }
        }
    }

    deinit {
        reader?.cancel()
    }

    private func add(_ message: ReceivedMessage) {
        messages.append(message)
    }

    private func end(_ error: any Error) {
        ending = error
    }

    /// Waits for a message with this payload.
    @discardableResult
    func until(_ payload: String) async throws -> ReceivedMessage {
        var found: ReceivedMessage?
        try await Support.until("\(payload) is received") {
            if let ending { throw ending }
            found = messages.last { $0.payload.text == payload }
            return found != nil
        }
        guard let found else { throw Lab.Failure("nothing was received") }
        return found
    }
}
