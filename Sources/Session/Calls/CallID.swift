/// Identifies a program's call that is waiting for its answer. The holder of the call assigns the id, and an action
/// says when to answer.
package struct CallID: Hashable, Comparable, Sendable {
    package let rawValue: Int

    package init(rawValue: Int) {
        self.rawValue = rawValue
    }

    package static func < (left: CallID, right: CallID) -> Bool { left.rawValue < right.rawValue }
}
