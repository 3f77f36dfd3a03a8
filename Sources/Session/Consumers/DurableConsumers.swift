package import ControlAPI
package import MQTT
import NIOCore
package import SessionCore

/// The durable consumers of one session: what they are, and which program takes their messages at the moment.
///
/// The messages are in the store; here is only what a program has been given and has not acknowledged, so a program that
/// is slow, or gone, costs disk and no memory. One program at a time has a consumer: a later one takes it over.
package struct DurableConsumers: Hashable, Sendable {
    /// How many messages, and bytes of messages, a program has at once without having acknowledged them. One of any size
    /// is always given.
    package static let windowMessages = 256
    package static let windowBytes = 256 << 10
    /// How many durable consumers a session may have.
    package static let maximum = 64

    /// A program that takes a consumer's messages.
    package struct Attachment: Hashable, Sendable {
        package let subscription: SubscriptionID
        /// Whether the consumer is durable, and everything acknowledged before is gone: messages may be given.
        fileprivate var isReady = false
        /// The last message that was given.
        package fileprivate(set) var cursor = InboxSequence.zero
        /// What was given and not acknowledged, with its size.
        fileprivate var unacknowledged: [InboxSequence: Int] = [:]
        fileprivate var unacknowledgedBytes = 0
        fileprivate var isLoading = false

        package init(subscription: SubscriptionID) {
            self.subscription = subscription
        }
    }

    package struct Consumer: Hashable, Sendable {
        /// As it was given.
        package fileprivate(set) var text: String
        package fileprivate(set) var qos: QoS
        /// `nil` while it stands for nothing: relative to a room, and there is none.
        package fileprivate(set) var filter: TopicFilter?
        /// A message up to this one may have been given to a program before.
        package fileprivate(set) var givenThrough = InboxSequence.zero
        /// What comes up to this one was dropped.
        fileprivate var droppedThrough = InboxSequence.zero
        package fileprivate(set) var attachment: Attachment?
    }

    /// Messages to be read from the store.
    package struct Load: Hashable, Sendable {
        package var name: ConsumerName
        package var subscription: SubscriptionID
        package var after: InboxSequence
        package var messages: Int
        package var bytes: Int
        /// The last one that is known to be there.
        package var through: InboxSequence
    }

    /// What a program has acknowledged.
    package struct Taken: Hashable, Sendable {
        package var name: ConsumerName
        package var messages: [TakenMessage]
    }

    package private(set) var consumers: [ConsumerName: Consumer] = [:]
    /// The last message that is in the inbox for certain, or was.
    package private(set) var collectedThrough: InboxSequence
    /// The consumer that was read for last.
    private var lastLoaded: ConsumerName?

    /// - Parameter attached: programs that were there before the session was started anew.
    package init(_ durable: DurableSession, attached: [ConsumerName: Attachment] = [:]) {
        collectedThrough = InboxSequence(rawValue: durable.nextInboxSequence.rawValue - 1)
        for consumer in durable.consumers {
            var attachment = attached[consumer.name]
            // What was being read then is read again; whoever asked for it does not give it any more.
            attachment?.isLoading = false
            consumers[consumer.name] = Consumer(
                text: consumer.filter, qos: consumer.qos,
                // Of a program that was there when the daemon ended it is not known how much it was given.
                givenThrough: attachment?.cursor ?? min(consumer.givenThrough, collectedThrough),
                attachment: attachment)
        }
    }

    package var attached: [ConsumerName: Attachment] { consumers.compactMapValues(\.attachment) }
    package var isAttached: Bool { consumers.values.contains { $0.attachment != nil } }
    package var filters: Set<TopicFilter> { Set(consumers.values.compactMap(\.filter)) }

    package subscript(name: ConsumerName) -> Consumer? { consumers[name] }

    /// The highest QoS with which it is wanted.
    package func qos(of filter: TopicFilter) -> QoS? {
        consumers.values.filter { $0.filter == filter }.map(\.qos).max()
    }

    /// The consumers that want a filter, in order.
    package func names(for filter: TopicFilter) -> [ConsumerName] {
        consumers.filter { $0.value.filter == filter }.keys.sorted()
    }

    package func name(of subscription: SubscriptionID) -> ConsumerName? {
        consumers.first { $0.value.attachment?.subscription == subscription }?.key
    }

    // MARK: Coming and going

    /// Adds a consumer, or changes what it wants; what waits for it stays.
    package mutating func put(_ name: ConsumerName, _ text: String, _ filter: TopicFilter, _ qos: QoS) {
        consumers[name, default: Consumer(text: text, qos: qos)].text = text
        consumers[name]?.qos = qos
        consumers[name]?.filter = filter
    }

    /// - Returns: the subscription of the program that had it.
    package mutating func remove(_ name: ConsumerName) -> SubscriptionID? {
        consumers.removeValue(forKey: name)?.attachment?.subscription
    }

    /// Gives a consumer to a program.
    ///
    /// - Returns: the subscription of the program that had it before.
    package mutating func attach(_ subscription: SubscriptionID, to name: ConsumerName) -> SubscriptionID? {
        let before = detach(name)
        consumers[name]?.attachment = Attachment(subscription: subscription)
        return before
    }

    package mutating func ready(_ name: ConsumerName, _ subscription: SubscriptionID) {
        if consumers[name]?.attachment?.subscription == subscription { consumers[name]?.attachment?.isReady = true }
    }

    /// - Returns: the subscription of the program that had it.
    @discardableResult
    package mutating func detach(_ name: ConsumerName) -> SubscriptionID? {
        defer { consumers[name]?.attachment = nil }
        return consumers[name]?.attachment?.subscription
    }

    /// What relative filters stand for in a room, or in none.
    ///
    /// - Returns: the consumers whose filter is another one now.
    package mutating func follow(to room: Room?) -> [(name: ConsumerName, old: TopicFilter?, new: TopicFilter?)] {
        var moves: [(name: ConsumerName, old: TopicFilter?, new: TopicFilter?)] = []
        for (name, consumer) in consumers.sorted(by: { $0.key < $1.key }) {
            let new = (try? Room.resolve(consumer.text, in: room)).flatMap { try? TopicFilter($0) }
            guard new != consumer.filter else { continue }
            consumers[name]?.filter = new
            moves.append((name, consumer.filter, new))
        }
        return moves
    }

    // MARK: Messages

    package mutating func collected(through sequence: InboxSequence) {
        collectedThrough = max(collectedThrough, sequence)
    }

    /// What is to be read next: as soon as a quarter of the window is free, so that it is not read one by one. For one
    /// consumer at a time, each in turn: what is read is accounted for before the next is asked whether there is room.
    ///
    /// - Parameter hasRoom: whether a program has read enough to be given more.
    package mutating func beginLoad(hasRoom: (SubscriptionID) -> Bool = { _ in true }) -> Load? {
        guard !consumers.values.contains(where: { $0.attachment?.isLoading == true }) else { return nil }
        let names = consumers.keys.sorted()
        let next = names.firstIndex { name in lastLoaded.map { $0 < name } ?? true } ?? 0
        for name in names[next...] + names[..<next] {
            guard let attachment = consumers[name]?.attachment, attachment.isReady,
                attachment.cursor < collectedThrough,
                attachment.unacknowledged.count <= Self.windowMessages * 3 / 4,
                attachment.unacknowledgedBytes <= Self.windowBytes * 3 / 4,
                hasRoom(attachment.subscription)
            else { continue }
            consumers[name]?.attachment?.isLoading = true
            lastLoaded = name
            return Load(
                name: name, subscription: attachment.subscription, after: attachment.cursor,
                messages: Self.windowMessages - attachment.unacknowledged.count,
                bytes: Self.windowBytes - attachment.unacknowledgedBytes, through: collectedThrough)
        }
        return nil
    }

    /// What becomes of messages that were read for a program.
    package struct Loaded: Hashable, Sendable {
        /// What the program is to be given. Not given by this type: that the program is gone may turn out in giving.
        package var given: [ReceivedMessage] = []
        /// What nobody wants any more.
        package var overdue: [TakenMessage] = []
    }

    /// Takes what was read for a program, if it is still there.
    ///
    /// - Parameter maximumAge: milliseconds after which a message is too old; `nil`: never.
    package mutating func loaded(
        _ messages: [CollectedMessage], for load: Load, session: SessionName, at now: Timestamp, maximumAge: Int64?
    ) -> Loaded {
        var loaded = Loaded()
        guard var consumer = consumers[load.name], var attachment = consumer.attachment,
            attachment.subscription == load.subscription
        else { return loaded }
        attachment.isLoading = false
        if messages.isEmpty { attachment.cursor = max(attachment.cursor, load.through) }
        for collected in messages {
            let message = collected.message
            attachment.cursor = collected.sequence
            // It was dropped since it was read.
            guard collected.sequence > consumer.droppedThrough else { continue }
            guard !collected.isOverdue(at: now, maximumAge: maximumAge) else {
                loaded.overdue.append(TakenMessage(sequence: collected.sequence, size: collected.size))
                continue
            }
            attachment.unacknowledged[collected.sequence] = collected.size
            attachment.unacknowledgedBytes += collected.size
            let received = ReceivedMessage(
                subscription: attachment.subscription, session: session.description,
                id: collected.sequence.rawValue, topic: message.topic,
                payload: MessagePayload(bytes: Array(message.payload.readableBytesView)),
                qos: MessageQoS(message.qos), retain: message.retain,
                duplicate: message.duplicate || collected.sequence <= consumer.givenThrough,
                properties: MessageProperties(message.properties))
            loaded.given.append(received)
            consumer.givenThrough = max(consumer.givenThrough, collected.sequence)
        }
        consumer.attachment = attachment
        consumers[load.name] = consumer
        return loaded
    }

    /// The oldest messages of a consumer were dropped. Those that a program has are no longer waited for.
    package mutating func dropped(through sequence: InboxSequence, of name: ConsumerName) {
        guard var consumer = consumers[name] else { return }
        consumer.droppedThrough = max(consumer.droppedThrough, sequence)
        if var attachment = consumer.attachment {
            for (given, size) in attachment.unacknowledged where given <= sequence {
                attachment.unacknowledged[given] = nil
                attachment.unacknowledgedBytes -= size
            }
            consumer.attachment = attachment
        }
        consumers[name] = consumer
    }

    /// - Returns: what is acknowledged now and was not before; `nil` for a message that the program was not given.
    package mutating func acknowledge(_ id: InboxSequence, upTo: Bool, by subscription: SubscriptionID) -> Taken? {
        guard let name = name(of: subscription), var attachment = consumers[name]?.attachment, id > .zero,
            id <= attachment.cursor
        else { return nil }
        let messages = attachment.unacknowledged.filter { upTo ? $0.key <= id : $0.key == id }
            .map { TakenMessage(sequence: $0.key, size: $0.value) }.sorted { $0.sequence < $1.sequence }
        for message in messages {
            attachment.unacknowledged[message.sequence] = nil
            attachment.unacknowledgedBytes -= message.size
        }
        consumers[name]?.attachment = attachment
        return Taken(name: name, messages: messages)
    }
}

extension CollectedMessage {
    /// Whether nobody wants it any more: by what its publisher said, or by the configuration.
    package func isOverdue(at now: Timestamp, maximumAge: Int64?) -> Bool {
        if let expiresAt, expiresAt <= now { return true }
        return maximumAge.map { receivedAt.rawValue + $0 <= now.rawValue } ?? false
    }
}
