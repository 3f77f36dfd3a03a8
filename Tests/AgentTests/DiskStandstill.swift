import NIOConcurrencyHelpers
import NIOCore
import Transport

/// A disk that does not answer: the store's thread, or that of a call, stands still until the end.
struct Standstill {
    private let isOver = ConditionLock(value: false)

    init(of disk: any EventLoop) {
        disk.execute { [isOver] in
            isOver.lock(whenValue: true)
            isOver.unlock()
        }
    }

    /// - Parameter key: whatever else is called with it waits.
    init(of key: String, in calls: BlockingCalls) {
        _ = calls.run(key, within: nil) { [isOver] in
            isOver.lock(whenValue: true)
            isOver.unlock()
        }
    }

    func end() {
        isOver.lock()
        isOver.unlock(withValue: true)
    }
}
