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
    /// is always given. As much is held in memory for a program that has everything before it.
    package static let windowMessages = 1024
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
        /// What was given and not acknowledged, in order.
        fileprivate var unacknowledged: [TakenMessage] = []
        fileprivate var unacknowledgedBytes = 0
        fileprivate var isLoading = false
        /// What comes up to this one was given, or is in `ahead`, or is being read.
        fileprivate var readThrough = InboxSequence.zero
        /// What came into the inbox when the program had all that was there before: it need not be read.
        fileprivate var ahead: [CollectedMessage] = []
        fileprivate var aheadBytes = 0

        package init(subscription: SubscriptionID) {
            self.subscription = subscription
        }

        fileprivate func hasRoom(for message: CollectedMessage) -> Bool {
            unacknowledged.isEmpty
                || (unacknowledged.count < windowMessages && unacknowledgedBytes + message.size <= windowBytes)
        }

        /// How many of what is not acknowledged come up to a message.
        private func count(through sequence: InboxSequence) -> Int {
            var (low, high) = (0, unacknowledged.count)
            while low < high {
                let middle = (low + high) / 2
                if unacknowledged[middle].sequence <= sequence { low = middle + 1 } else { high = middle }
            }
            return low
        }

        /// Takes all up to this one out of what is not acknowledged.
        fileprivate mutating func take(through sequence: InboxSequence) -> [TakenMessage] {
            let taken = Array(unacknowledged.prefix(count(through: sequence)))
            unacknowledged.removeFirst(taken.count)
            for message in taken { unacknowledgedBytes -= message.size }
            return taken
        }

        /// Takes this one out of what is not acknowledged; `nil` if it is not there.
        fileprivate mutating func take(_ sequence: InboxSequence) -> TakenMessage? {
            let index = count(through: sequence) - 1
            guard index >= 0, unacknowledged[index].sequence == sequence else { return nil }
            let message = unacknowledged.remove(at: index)
            unacknowledgedBytes -= message.size
            return message
        }

        /// Holds a message that the program is to have next, if there is room for it.
        fileprivate mutating func hold(_ message: CollectedMessage) -> Bool {
            guard ahead.count < windowMessages, aheadBytes + message.size <= windowBytes || ahead.isEmpty else {
                return false
            }
            var message = message
            // Otherwise it keeps everything in memory that was read from the server at once.
            message.message.payload = ByteBuffer(bytes: message.message.payload.readableBytesView)
            ahead.append(message)
            aheadBytes += message.size
            return true
        }

        /// Holds what is for this consumer of messages that came into the inbox behind `end`, if it has all up to there;
        /// as many as there is room for.
        fileprivate mutating func hold(_ messages: [InboxMessage], for name: ConsumerName, after end: InboxSequence) {
            guard isReady, !isLoading, readThrough == end else { return }
            for collected in messages {
                if collected.consumers.contains(name) {
                    guard hold(collected.message) else { return }
                }
                readThrough = collected.message.sequence
            }
        }

        /// What is held is read from the store after all.
        fileprivate mutating func forgetAhead() {
            ahead = []
            aheadBytes = 0
            // What is being read is taken up where it ends.
            if !isLoading { readThrough = cursor }
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
            attachment?.forgetAhead()
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

    package mutating func remove(_ name: ConsumerName) { consumers[name] = nil }

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

    /// Messages are in the inbox for certain, in order. A program that has all that was there before is given them without
    /// their being read.
    package mutating func collected(_ messages: [InboxMessage]) {
        guard let last = messages.last?.message.sequence else { return }
        for name in Array(consumers.keys) {
            consumers[name]?.attachment?.hold(messages, for: name, after: collectedThrough)
        }
        collectedThrough = max(collectedThrough, last)
    }

    /// What programs can be given of what is held for them.
    ///
    /// - Parameter hasRoom: whether a program has read enough to be given more.
    package mutating func giveAhead(
        session: SessionName, at now: Timestamp, maximumAge: Int64?, hasRoom: (SubscriptionID) -> Bool
    ) -> [(name: ConsumerName, loaded: Loaded)] {
        var all: [(name: ConsumerName, loaded: Loaded)] = []
        for name in consumers.keys.sorted() {
            guard let attachment = consumers[name]?.attachment, let first = attachment.ahead.first,
                attachment.hasRoom(for: first), hasRoom(attachment.subscription)
            else { continue }
            all.append((name, giveAhead(to: name, session, now, maximumAge)))
        }
        return all
    }

    private mutating func giveAhead(
        to name: ConsumerName, _ session: SessionName, _ now: Timestamp, _ maximumAge: Int64?
    ) -> Loaded {
        var loaded = Loaded()
        guard var consumer = consumers[name], var attachment = consumer.attachment else { return loaded }
        consumer.attachment = nil
        consumers[name] = nil
        var count = 0
        while count < attachment.ahead.count, attachment.hasRoom(for: attachment.ahead[count]) {
            let message = attachment.ahead[count]
            count += 1
            attachment.aheadBytes -= message.size
            give(message, &attachment, &consumer, session, now, maximumAge, &loaded)
        }
        attachment.ahead.removeFirst(count)
        consumer.attachment = attachment
        consumers[name] = consumer
        return loaded
    }

    /// What is held for programs is read from the store after all: its times are other ones there.
    package mutating func forgetAhead() {
        for name in consumers.keys { consumers[name]?.attachment?.forgetAhead() }
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
                attachment.ahead.isEmpty, attachment.readThrough < collectedThrough,
                attachment.unacknowledged.count <= Self.windowMessages * 3 / 4,
                attachment.unacknowledgedBytes <= Self.windowBytes * 3 / 4,
                hasRoom(attachment.subscription)
            else { continue }
            consumers[name]?.attachment?.isLoading = true
            lastLoaded = name
            return Load(
                name: name, subscription: attachment.subscription, after: attachment.readThrough,
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
        // Otherwise what is changed would be copied.
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
        // It was dropped since it was read.
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

    /// The oldest messages of a consumer were dropped. Those that a program has are no longer waited for.
    package mutating func dropped(through sequence: InboxSequence, of name: ConsumerName) {
        guard var consumer = consumers[name] else { return }
        consumer.droppedThrough = max(consumer.droppedThrough, sequence)
        if var attachment = consumer.attachment {
            _ = attachment.take(through: sequence)
            consumer.attachment = attachment
        }
        consumers[name] = consumer
    }

    /// - Returns: what is acknowledged now and was not before; `nil` for a message that the program was not given.
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
    /// Whether nobody wants it any more: by what its publisher said, or by the configuration.
    package func isOverdue(at now: Timestamp, maximumAge: Int64?) -> Bool {
        if let expiresAt, expiresAt <= now { return true }
        return maximumAge.map { receivedAt.rawValue + $0 <= now.rawValue } ?? false
    }
}
