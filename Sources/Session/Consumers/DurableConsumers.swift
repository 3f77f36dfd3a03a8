package import ControlAPI
package import MQTT
import NIOCore

/// The durable consumers of one session, and which program takes the messages of each at the moment.
///
/// The messages are in the store. This value holds only those that a program has been given and has not acknowledged,
/// and the next ones for a program that is up to date. So a program that is slow, or gone, costs disk space and no
/// memory. A consumer has one program at a time: a later one takes over.
package struct DurableConsumers: Hashable, Sendable {
    /// How many messages, and bytes of messages, a program may be given before it acknowledges them. One message is
    /// always given, whatever its size.
    package static let windowMessages = 1024
    package static let windowBytes = 4 << 20
    /// How many bytes of messages are given, or read from the store, at once. One message always is.
    package static let portionBytes = 512 << 10
    /// How many durable consumers a session may have.
    package static let maximum = 64

    /// A program that takes a consumer's messages.
    package struct Attachment: Hashable, Sendable {
        package let subscription: SubscriptionID
        /// Whether messages may be given: the consumer is durable, and the messages that were acknowledged before have
        /// left the store.
        fileprivate var isReady = false
        /// The last message that was given.
        package fileprivate(set) var cursor = InboxSequence.zero
        /// What was given and has not been acknowledged, in order.
        fileprivate var unacknowledged: [TakenMessage] = []
        fileprivate var unacknowledgedBytes = 0
        fileprivate var isLoading = false
        /// Everything up to this message was given, is in `ahead`, or is being read.
        fileprivate var readThrough = InboxSequence.zero
        /// Messages that arrived in the inbox while the program was up to date, and so need not be read from the store.
        fileprivate var ahead: [CollectedMessage] = []
        fileprivate var aheadBytes = 0

        package init(subscription: SubscriptionID) {
            self.subscription = subscription
        }

        fileprivate func hasRoom(for message: CollectedMessage) -> Bool {
            unacknowledged.isEmpty
                || (unacknowledged.count < windowMessages && unacknowledgedBytes + message.size <= windowBytes)
        }

        /// How many of the unacknowledged messages are at or before this one.
        private func count(through sequence: InboxSequence) -> Int {
            var (low, high) = (0, unacknowledged.count)
            while low < high {
                let middle = (low + high) / 2
                if unacknowledged[middle].sequence <= sequence { low = middle + 1 } else { high = middle }
            }
            return low
        }

        /// Removes all messages up to this one from the unacknowledged ones.
        fileprivate mutating func take(through sequence: InboxSequence) -> [TakenMessage] {
            let taken = Array(unacknowledged.prefix(count(through: sequence)))
            unacknowledged.removeFirst(taken.count)
            for message in taken { unacknowledgedBytes -= message.size }
            return taken
        }

        /// Removes this message from the unacknowledged ones; `nil` if it is not among them.
        fileprivate mutating func take(_ sequence: InboxSequence) -> TakenMessage? {
            let index = count(through: sequence) - 1
            guard index >= 0, unacknowledged[index].sequence == sequence else { return nil }
            let message = unacknowledged.remove(at: index)
            unacknowledgedBytes -= message.size
            return message
        }

        /// Holds the next message for the program. Returns whether there was room for it.
        fileprivate mutating func hold(_ message: CollectedMessage, within bytes: Int) -> Bool {
            guard ahead.count < windowMessages, aheadBytes + message.size <= bytes else { return false }
            var message = message
            message.message.payload = message.message.payload.detached()
            ahead.append(message)
            aheadBytes += message.size
            return true
        }

        /// Holds the messages for this consumer that arrived in the inbox after `end`, as many as there is room for, if
        /// the program is up to date as far as `end`.
        fileprivate mutating func hold(
            _ messages: [InboxMessage], for name: ConsumerName, after end: InboxSequence, within bytes: Int
        ) {
            guard isReady, !isLoading, readThrough == end else { return }
            for collected in messages {
                if collected.consumers.contains(name) {
                    guard hold(collected.message, within: bytes) else { return }
                }
                readThrough = collected.message.sequence
            }
        }

        /// Discards what is held; it is then read from the store.
        fileprivate mutating func forgetAhead() {
            ahead = []
            aheadBytes = 0
            // A read that is under way sets `readThrough` when it ends.
            if !isLoading { readThrough = cursor }
        }
    }

    package struct Consumer: Hashable, Sendable {
        /// The filter as the program gave it.
        package fileprivate(set) var text: String
        package fileprivate(set) var qos: QoS
        /// `nil` while the filter stands for nothing: it is relative to a room, and the session is in none.
        package fileprivate(set) var filter: TopicFilter?
        /// The filters that it had before, until the server has granted the present one.
        package fileprivate(set) var former: Set<TopicFilter> = []
        /// Messages up to this one may have been given to a program before.
        package fileprivate(set) var givenThrough = InboxSequence.zero
        /// Messages up to this one were dropped.
        fileprivate var droppedThrough = InboxSequence.zero
        package fileprivate(set) var attachment: Attachment?
    }

    /// A request to read messages from the store.
    package struct Load: Hashable, Sendable {
        package var name: ConsumerName
        package var subscription: SubscriptionID
        package var after: InboxSequence
        package var messages: Int
        /// The last message that is known to be in the store.
        package var through: InboxSequence
    }

    /// What a program has acknowledged.
    package struct Taken: Hashable, Sendable {
        package var name: ConsumerName
        package var messages: [TakenMessage]
    }

    package private(set) var consumers: [ConsumerName: Consumer] = [:]
    /// How many bytes of messages are held for all programs together that are up to date. Each has an equal share.
    package var memory: Int
    /// The last message that is known to be in the inbox, or to have been there.
    package private(set) var collectedThrough: InboxSequence
    /// The consumer that messages were last read for.
    private var lastLoaded: ConsumerName?

    /// - Parameter attached: programs that were attached before the session was restarted.
    package init(
        _ durable: DurableSession, attached: [ConsumerName: Attachment] = [:],
        memory: Int = MessageMemory(sessions: 1).ahead
    ) {
        self.memory = memory
        collectedThrough = InboxSequence(rawValue: durable.nextInboxSequence.rawValue - 1)
        for consumer in durable.consumers {
            var attachment = attached[consumer.name]
            // A read that was under way is repeated; the old one's result is ignored.
            attachment?.isLoading = false
            attachment?.forgetAhead()
            consumers[consumer.name] = Consumer(
                text: consumer.filter, qos: consumer.qos,
                // If a program was attached when the daemon ended, it may have been given anything in the inbox.
                givenThrough: attachment?.cursor ?? min(consumer.givenThrough, collectedThrough),
                attachment: attachment)
        }
    }

    /// The programs that may be given messages.
    package var attached: [ConsumerName: Attachment] {
        consumers.compactMapValues(\.attachment).filter(\.value.isReady)
    }
    /// The subscriptions of the programs whose calls are not answered yet.
    package var attaching: [SubscriptionID] {
        consumers.values.compactMap(\.attachment).filter { !$0.isReady }.map(\.subscription)
    }
    package var isAttached: Bool { consumers.values.contains { $0.attachment != nil } }
    package var filters: Set<TopicFilter> { Set(consumers.values.compactMap(\.filter)) }

    package subscript(name: ConsumerName) -> Consumer? { consumers[name] }

    /// The highest QoS with which the filter is wanted.
    package func qos(of filter: TopicFilter) -> QoS? {
        consumers.values.filter { $0.filter == filter || $0.former.contains(filter) }.map(\.qos).max()
    }

    /// The consumers that want a filter, ordered by name.
    package func names(for filter: TopicFilter) -> [ConsumerName] {
        consumers.filter { $0.value.filter == filter }.keys.sorted()
    }

    package func name(of subscription: SubscriptionID) -> ConsumerName? {
        consumers.first { $0.value.attachment?.subscription == subscription }?.key
    }

    // MARK: Coming and going

    /// Adds a consumer, or changes its filter and QoS; its waiting messages stay.
    ///
    /// - Parameter former: the filters that it keeps until the server has granted the new one.
    package mutating func put(
        _ name: ConsumerName, _ text: String, _ filter: TopicFilter?, _ qos: QoS, former: Set<TopicFilter> = []
    ) {
        consumers[name, default: Consumer(text: text, qos: qos)].text = text
        consumers[name]?.qos = qos
        consumers[name]?.filter = filter
        consumers[name]?.former = filter.map { former.subtracting([$0]) } ?? former
    }

    /// Notes that the server has granted a filter.
    ///
    /// - Returns: the consumers that had another one until now.
    package mutating func granted(_ filter: TopicFilter) -> [ConsumerName] {
        let names = consumers.filter { $0.value.filter == filter && !$0.value.former.isEmpty }.keys.sorted()
        for name in names { consumers[name]?.former = [] }
        return names
    }

    /// Drops a filter that consumers had before, because their new one holds whether or not the server has granted it.
    ///
    /// - Returns: the consumers that have changed.
    package mutating func dropFormer(_ filter: TopicFilter) -> [ConsumerName] {
        let names = consumers.filter { $0.value.former.contains(filter) }.keys.sorted()
        for name in names { consumers[name]?.former.remove(filter) }
        return names
    }

    package mutating func remove(_ name: ConsumerName) { consumers[name] = nil }

    /// Attaches a program to a consumer.
    ///
    /// - Returns: the subscription of the program that was attached before.
    package mutating func attach(_ subscription: SubscriptionID, to name: ConsumerName) -> SubscriptionID? {
        let before = detach(name)
        consumers[name]?.attachment = Attachment(subscription: subscription)
        return before
    }

    package mutating func ready(_ name: ConsumerName, _ subscription: SubscriptionID) {
        if consumers[name]?.attachment?.subscription == subscription { consumers[name]?.attachment?.isReady = true }
    }

    /// - Returns: the subscription of the program that was attached.
    @discardableResult
    package mutating func detach(_ name: ConsumerName) -> SubscriptionID? {
        defer { consumers[name]?.attachment = nil }
        return consumers[name]?.attachment?.subscription
    }

    /// Resolves relative filters in a room, or in none.
    ///
    /// - Returns: the consumers whose filter has changed.
    package mutating func follow(to room: Room?) -> [(name: ConsumerName, old: TopicFilter?, new: TopicFilter?)] {
        var moves: [(name: ConsumerName, old: TopicFilter?, new: TopicFilter?)] = []
        for (name, consumer) in consumers.sorted(by: { $0.key < $1.key }) {
            let new = (try? Room.resolve(consumer.text, in: room)).flatMap { try? TopicFilter($0) }
            guard new != consumer.filter else { continue }
            consumers[name]?.filter = new
            consumers[name]?.former = []
            moves.append((name, consumer.filter, new))
        }
        return moves
    }

    // MARK: Messages

    /// Notes that messages are durable in the inbox, in order. They are held for programs that are up to date, so that
    /// they need not be read.
    package mutating func collected(_ messages: [InboxMessage]) {
        guard let last = messages.last?.message.sequence else { return }
        let share = memory / max(1, consumers.count)
        for name in Array(consumers.keys) {
            consumers[name]?.attachment?.hold(messages, for: name, after: collectedThrough, within: share)
        }
        collectedThrough = max(collectedThrough, last)
    }

    /// Returns held messages to give to the first program that has room for some; `nil` if none has.
    ///
    /// - Parameter hasRoom: whether a program has read enough to be given more.
    package mutating func giveAhead(
        session: SessionName, at now: Timestamp, maximumAge: Int64?, hasRoom: (SubscriptionID) -> Bool
    ) -> (name: ConsumerName, loaded: Loaded)? {
        let next = consumers.keys.sorted().first { name in
            guard let attachment = consumers[name]?.attachment, let first = attachment.ahead.first else { return false }
            return attachment.hasRoom(for: first) && hasRoom(attachment.subscription)
        }
        return next.map { ($0, giveAhead(to: $0, session, now, maximumAge)) }
    }

    private mutating func giveAhead(
        to name: ConsumerName, _ session: SessionName, _ now: Timestamp, _ maximumAge: Int64?
    ) -> Loaded {
        var loaded = Loaded()
        guard var consumer = consumers[name], var attachment = consumer.attachment else { return loaded }
        consumer.attachment = nil
        consumers[name] = nil
        var (count, bytes) = (0, 0)
        while count < attachment.ahead.count, attachment.hasRoom(for: attachment.ahead[count]) {
            let message = attachment.ahead[count]
            guard count == 0 || bytes + message.size <= Self.portionBytes else { break }
            count += 1
            bytes += message.size
            attachment.aheadBytes -= message.size
            give(message, &attachment, &consumer, session, now, maximumAge, &loaded)
        }
        attachment.ahead.removeFirst(count)
        consumer.attachment = attachment
        consumers[name] = consumer
        return loaded
    }

    /// Discards what is held for programs; it is then read from the store, which has the corrected times.
    package mutating func forgetAhead() {
        for name in consumers.keys { consumers[name]?.attachment?.forgetAhead() }
    }

    /// The messages to read next, once a quarter of the window is free, so that they are not read one by one. Consumers
    /// take turns, one read at a time: what is read is counted before the next consumer is asked whether there is room.
    ///
    /// - Parameter hasRoom: whether a program has read enough to be given more.
    package mutating func beginLoad(hasRoom: (SubscriptionID) -> Bool = { _ in true }) -> Load? {
        guard !consumers.values.contains(where: { $0.attachment?.isLoading == true }) else { return nil }
        let names = consumers.keys.sorted()
        let next = names.firstIndex { name in lastLoaded.map { $0 < name } ?? true } ?? 0
        for name in names[next...] + names[..<next] {
            guard let attachment = consumers[name]?.attachment, attachment.isReady,
                attachment.ahead.isEmpty, attachment.readThrough < collectedThrough,
                attachment.unacknowledged.count <= Self.windowMessages * 3 / 4,
                attachment.unacknowledgedBytes <= Self.windowBytes * 3 / 4,
                hasRoom(attachment.subscription)
            else { continue }
            consumers[name]?.attachment?.isLoading = true
            lastLoaded = name
            return Load(
                name: name, subscription: attachment.subscription, after: attachment.readThrough,
                messages: Self.windowMessages - attachment.unacknowledged.count, through: collectedThrough)
        }
        return nil
    }

    /// What happens to the messages that were read for a program.
    package struct Loaded: Hashable, Sendable {
        /// What to give to the program. The caller gives it, since it may find out only then that the program is gone.
        package var given: [ReceivedMessage] = []
        /// What is too old to be of use.
        package var overdue: [TakenMessage] = []
    }

    /// Takes what was read for a program, if the program is still attached.
    ///
    /// - Parameter maximumAge: milliseconds after which a message is too old; `nil`: never.
    package mutating func loaded(
        _ messages: [CollectedMessage], for load: Load, session: SessionName, at now: Timestamp, maximumAge: Int64?
    ) -> Loaded {
        var loaded = Loaded()
        guard var consumer = consumers[load.name], var attachment = consumer.attachment,
            attachment.subscription == load.subscription
        else { return loaded }
        // Without this, the arrays would be copied when they are changed.
        consumer.attachment = nil
        consumers[load.name] = nil
        attachment.isLoading = false
        for message in messages { give(message, &attachment, &consumer, session, now, maximumAge, &loaded) }
        if messages.isEmpty { attachment.cursor = max(attachment.cursor, load.through) }
        attachment.readThrough = attachment.cursor
        consumer.attachment = attachment
        consumers[load.name] = consumer
        return loaded
    }

    private func give(
        _ collected: CollectedMessage, _ attachment: inout Attachment, _ consumer: inout Consumer,
        _ session: SessionName, _ now: Timestamp, _ maximumAge: Int64?, _ loaded: inout Loaded
    ) {
        let message = collected.message
        attachment.cursor = collected.sequence
        // It may have been dropped after it was read.
        guard collected.sequence > consumer.droppedThrough else { return }
        let size = collected.size
        guard !collected.isOverdue(at: now, maximumAge: maximumAge) else {
            loaded.overdue.append(TakenMessage(sequence: collected.sequence, size: size))
            return
        }
        attachment.unacknowledged.append(TakenMessage(sequence: collected.sequence, size: size))
        attachment.unacknowledgedBytes += size
        loaded.given.append(
            ReceivedMessage(
                subscription: attachment.subscription, session: session.description,
                id: collected.sequence.rawValue, topic: message.topic,
                payload: MessagePayload(bytes: Array(message.payload.readableBytesView)),
                qos: message.qos, retain: message.retain,
                duplicate: message.duplicate || collected.sequence <= consumer.givenThrough,
                properties: MessageProperties(message.properties)))
        consumer.givenThrough = max(consumer.givenThrough, collected.sequence)
    }

    /// Notes that the oldest messages of a consumer were dropped. Its program need no longer acknowledge them.
    package mutating func dropped(through sequence: InboxSequence, of name: ConsumerName) {
        guard var consumer = consumers[name] else { return }
        consumer.droppedThrough = max(consumer.droppedThrough, sequence)
        if var attachment = consumer.attachment {
            _ = attachment.take(through: sequence)
            consumer.attachment = attachment
        }
        consumers[name] = consumer
    }

    /// - Returns: what is newly acknowledged; `nil` for a message that the program was not given.
    package mutating func acknowledge(_ id: InboxSequence, upTo: Bool, by subscription: SubscriptionID) -> Taken? {
        guard let name = name(of: subscription), var attachment = consumers[name]?.attachment, id > .zero,
            id <= attachment.cursor
        else { return nil }
        let messages = upTo ? attachment.take(through: id) : attachment.take(id).map { [$0] } ?? []
        consumers[name]?.attachment = attachment
        return Taken(name: name, messages: messages)
    }
}

extension CollectedMessage {
    /// Whether the message is too old to be of use: by its publisher's expiry, or by the configured maximum age.
    package func isOverdue(at now: Timestamp, maximumAge: Int64?) -> Bool {
        if let expiresAt, expiresAt <= now { return true }
        return maximumAge.map { receivedAt.rawValue + $0 <= now.rawValue } ?? false
    }
}
