/// Names a call of a program that waits for its answer. Who holds the call gives it its id, and is told when to answer.
package struct CallID: Hashable, Comparable, Sendable {
    package let rawValue: Int

    package init(rawValue: Int) {
        self.rawValue = rawValue
    }

    package static func < (left: CallID, right: CallID) -> Bool { left.rawValue < right.rawValue }
}
