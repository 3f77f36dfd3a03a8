import NIOConcurrencyHelpers
import NIOCore

/// A disk that does not answer: the store's thread stands still until the end.
struct Standstill {
    private let isOver = ConditionLock(value: false)

    init(of disk: any EventLoop) {
        disk.execute { [isOver] in
            isOver.lock(whenValue: true)
            isOver.unlock()
        }
    }

    func end() {
        isOver.lock()
        isOver.unlock(withValue: true)
    }
}
