/// A place in the source where one mistake can be switched on.
struct Site {
    /// What kind of mistake it is.
    enum Kind: String, CaseIterable {
        /// A condition holds when it should not, and the other way round.
        case turned
        /// `<` for `<=`, `min` for `max`, `&&` for `||`, `+` for `-`.
        case confused
        /// A number is one more, or one less.
        case number
        /// A statement is left out.
        case omitted
        /// Two arguments are in each other's place.
        case swapped
    }

    /// How the source is rewritten: text put in at offsets of the original file.
    struct Edit {
        /// Where the site begins and ends; what is put in there contains it.
        var range: Range<Int>
        var opening: String
        var closing: String
        /// An operator that something else takes the place of.
        var replaced: (range: Range<Int>, text: String)?
    }

    /// Where it is, in a way that survives changes elsewhere: the number is needed where a function has the same text twice.
    struct Key: Hashable, CustomStringConvertible {
        var file: String
        var function: String
        var kind: Kind
        var text: String
        var ordinal: Int

        var description: String {
            "\(file) | \(function) | \(kind.rawValue) | \(text)" + (ordinal > 1 ? " | \(ordinal)" : "")
        }
    }

    var key: Key
    var line: Int
    /// What it becomes, for people.
    var becomes: String
    var edit: Edit
    /// The lines of the function around it.
    var functionLines: ClosedRange<Int>
    /// What the program knows it as.
    var number = 0

    /// A place in an order that has nothing to do with the source, and does not change when the source changes elsewhere.
    func rank(seed: UInt64) -> UInt64 {
        var hash: UInt64 = 0xcbf2_9ce4_8422_2325 ^ (seed &* 0x9e37_79b9_7f4a_7c15)
        for byte in key.description.utf8 { hash = (hash ^ UInt64(byte)) &* 0x0000_0100_0000_01b3 }
        hash = (hash ^ (hash >> 30)) &* 0xbf58_476d_1ce4_e5b9
        hash = (hash ^ (hash >> 27)) &* 0x94d0_49bb_1331_11eb
        return hash ^ (hash >> 31)
    }
}
