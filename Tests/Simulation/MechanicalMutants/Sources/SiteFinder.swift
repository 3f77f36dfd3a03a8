import SwiftOperators
import SwiftParser
import SwiftSyntax

/// Finds the places of one file where mistakes can be made.
final class SiteFinder: SyntaxVisitor {
    private let file: String
    private let converter: SourceLocationConverter
    private var found: [Site] = []
    /// The numbers of sites so far that have the same file, function, kind and text.
    private var ordinals: [Site.Key: Int] = [:]
    /// The names of what surrounds the present node, and where it is.
    private var names: [(name: String, lines: ClosedRange<Int>)] = []

    static func sites(in source: String, of file: String) -> [Site] {
        let tree = OperatorTable.standardOperators.foldAll(Parser.parse(source: source)) { _ in }
        let finder = SiteFinder(file, tree)
        finder.walk(tree)
        return finder.found
    }

    private init(_ file: String, _ tree: Syntax) {
        self.file = file
        converter = SourceLocationConverter(fileName: file, tree: tree)
        super.init(viewMode: .sourceAccurate)
    }

    // MARK: What surrounds

    private func enter(_ name: String, _ node: some SyntaxProtocol) -> SyntaxVisitorContinueKind {
        names.append((name, lines(node)))
        return .visitChildren
    }

    override func visit(_ node: StructDeclSyntax) -> SyntaxVisitorContinueKind { enter(node.name.text, node) }
    override func visit(_ node: EnumDeclSyntax) -> SyntaxVisitorContinueKind { enter(node.name.text, node) }
    override func visit(_ node: ClassDeclSyntax) -> SyntaxVisitorContinueKind { enter(node.name.text, node) }
    override func visit(_ node: ExtensionDeclSyntax) -> SyntaxVisitorContinueKind {
        enter(node.extendedType.trimmedDescription, node)
    }
    override func visit(_ node: FunctionDeclSyntax) -> SyntaxVisitorContinueKind {
        enter(node.name.text + Self.labels(node.signature), node)
    }
    override func visit(_ node: InitializerDeclSyntax) -> SyntaxVisitorContinueKind {
        enter("init" + Self.labels(node.signature), node)
    }
    override func visit(_ node: SubscriptDeclSyntax) -> SyntaxVisitorContinueKind { enter("subscript", node) }
    override func visit(_ node: VariableDeclSyntax) -> SyntaxVisitorContinueKind {
        if node.parent?.is(MemberBlockItemSyntax.self) == true {
            names.append((node.bindings.first?.pattern.trimmedDescription ?? "", lines(node)))
        }
        return .visitChildren
    }
    override func visitPost(_ node: StructDeclSyntax) { names.removeLast() }
    override func visitPost(_ node: EnumDeclSyntax) { names.removeLast() }
    override func visitPost(_ node: ClassDeclSyntax) { names.removeLast() }
    override func visitPost(_ node: ExtensionDeclSyntax) { names.removeLast() }
    override func visitPost(_ node: FunctionDeclSyntax) { names.removeLast() }
    override func visitPost(_ node: InitializerDeclSyntax) { names.removeLast() }
    override func visitPost(_ node: SubscriptDeclSyntax) { names.removeLast() }
    override func visitPost(_ node: VariableDeclSyntax) {
        if node.parent?.is(MemberBlockItemSyntax.self) == true { names.removeLast() }
    }

    private static func labels(_ signature: FunctionSignatureSyntax) -> String {
        "(" + signature.parameterClause.parameters.map { $0.firstName.text + ":" }.joined() + ")"
    }

    // MARK: What is not looked into

    override func visit(_ node: AttributeListSyntax) -> SyntaxVisitorContinueKind { .skipChildren }
    override func visit(_ node: EnumCaseDeclSyntax) -> SyntaxVisitorContinueKind { .skipChildren }
    override func visit(_ node: StringLiteralExprSyntax) -> SyntaxVisitorContinueKind { .skipChildren }
    override func visit(_ node: ExpressionPatternSyntax) -> SyntaxVisitorContinueKind { .skipChildren }
    override func visit(_ node: MacroExpansionExprSyntax) -> SyntaxVisitorContinueKind { .skipChildren }

    // MARK: Expressions

    override func visit(_ node: ConditionElementSyntax) -> SyntaxVisitorContinueKind {
        switch node.condition {
        case .expression(let expression): lookAtCondition(expression)
        case .optionalBinding, .matchingPattern:
            let range = Self.range(node.condition)
            add(
                .turned, Syntax(node.condition), becomes: "never",
                Site.Edit(range: range, opening: "", closing: ", mutantKept(#)"))
        default: break
        }
        return .visitChildren
    }

    override func visit(_ node: TernaryExprSyntax) -> SyntaxVisitorContinueKind {
        lookAtCondition(node.condition)
        return .visitChildren
    }

    override func visit(_ node: WhereClauseSyntax) -> SyntaxVisitorContinueKind {
        lookAtCondition(node.condition)
        return .visitChildren
    }

    override func visit(_ node: RepeatStmtSyntax) -> SyntaxVisitorContinueKind {
        lookAtCondition(node.condition)
        return .visitChildren
    }

    /// A condition that is made of others is not turned round itself: its operator is confused with the other, and its
    /// parts are turned.
    private func lookAtCondition(_ expression: ExprSyntax) {
        let inner = Self.withoutParentheses(expression)
        if let infix = inner.as(InfixOperatorExprSyntax.self), let name = Self.name(of: infix) {
            if ["&&", "||", "==", "!=", "===", "!=="].contains(name) { return }
        }
        if let prefix = inner.as(PrefixOperatorExprSyntax.self), prefix.operator.text == "!" { return }
        if inner.is(BooleanLiteralExprSyntax.self) { return }
        turn(inner)
    }

    private func turn(_ expression: ExprSyntax) {
        add(.turned, expression, becomes: "!(…)", call("mutantTurned", around: expression))
    }

    override func visit(_ node: PrefixOperatorExprSyntax) -> SyntaxVisitorContinueKind {
        if node.operator.text == "!" { turn(ExprSyntax(node)) }
        return .visitChildren
    }

    override func visit(_ node: BooleanLiteralExprSyntax) -> SyntaxVisitorContinueKind {
        turn(ExprSyntax(node))
        return .skipChildren
    }

    private static let comparisons = [
        "<": "mutantLess", "<=": "mutantAtMost", ">": "mutantMore", ">=": "mutantAtLeast",
    ]
    private static let boundaries = ["<": "<=", "<=": "<", ">": ">=", ">=": ">"]

    override func visit(_ node: InfixOperatorExprSyntax) -> SyntaxVisitorContinueKind {
        guard let name = Self.name(of: node) else { return .visitChildren }
        switch name {
        case "==", "!=", "===", "!==":
            turn(ExprSyntax(node))
        case "<", "<=", ">", ">=":
            let edit = Site.Edit(
                range: Self.range(node), opening: "\(Self.comparisons[name] ?? "")(#, ", closing: ")",
                replaced: (Self.range(node.operator), ","))
            add(.confused, ExprSyntax(node), becomes: Self.boundaries[name] ?? "", edit)
        case "&&", "||":
            let edit = Site.Edit(
                range: Self.range(node), opening: "\(name == "&&" ? "mutantAnd" : "mutantOr")(#, ", closing: ")",
                replaced: (Self.range(node.operator), ","))
            add(.confused, ExprSyntax(node), becomes: name == "&&" ? "||" : "&&", edit)
            lookAtCondition(node.leftOperand)
            lookAtCondition(node.rightOperand)
        case "+", "-":
            let other = name == "+" ? "-" : "+"
            let text = Self.text(node.leftOperand) + " \(other) " + Self.text(node.rightOperand)
            add(.confused, ExprSyntax(node), becomes: other, alternative(text, to: node))
        case "..<":
            add(
                .number, node.rightOperand, becomes: "one more",
                alternative("(\(Self.text(node.rightOperand))) + 1", to: node.rightOperand))
            return .visitChildren
        default: break
        }
        return .visitChildren
    }

    override func visit(_ node: IntegerLiteralExprSyntax) -> SyntaxVisitorContinueKind {
        guard let value = Self.value(node.literal.text), !Self.isCapacity(node) else { return .skipChildren }
        // A step of one becomes none, which is worse than one of two.
        let isStep =
            value == 1
            && (node.parent?.as(InfixOperatorExprSyntax.self)).flatMap(Self.name(of:)).map {
                ["+", "-", "+=", "-=", "&+", "&-"].contains($0)
            } == true
        let other = isStep ? 0 : value + 1
        add(
            .number, ExprSyntax(node), becomes: "\(other)",
            Site.Edit(range: Self.range(node), opening: "mutantNumber(#, ", closing: ", \(other))"))
        return .skipChildren
    }

    /// Whether the number is the initial capacity of a collection, which has no visible effect.
    private static func isCapacity(_ node: IntegerLiteralExprSyntax) -> Bool {
        node.parent?.as(LabeledExprSyntax.self)?.label?.text == "initialCapacity"
    }

    override func visit(_ node: FunctionCallExprSyntax) -> SyntaxVisitorContinueKind {
        let callee = node.calledExpression.trimmedDescription
        if Self.isCheck(callee) { return .skipChildren }
        let arguments = Array(node.arguments)
        if ["min", "max"].contains(callee), arguments.count == 2 {
            let other = callee == "min" ? "max" : "min"
            add(
                .confused, ExprSyntax(node), becomes: other,
                alternative(other + String(Self.text(node).dropFirst(3)), to: node))
        }
        for (first, second) in zip(arguments, arguments.dropFirst())
        where callee != "min" && callee != "max" && Self.isPlain(first.expression) && Self.isPlain(second.expression)
            && Self.text(first.expression) != Self.text(second.expression)
        {
            let begin = node.positionAfterSkippingLeadingTrivia.utf8Offset
            var bytes = Array(node.trimmedDescription.utf8)
            let (a, b) = (Self.range(first.expression), Self.range(second.expression))
            let (left, right) = (
                Array(bytes[(a.lowerBound - begin)..<(a.upperBound - begin)]),
                Array(bytes[(b.lowerBound - begin)..<(b.upperBound - begin)])
            )
            bytes.replaceSubrange((b.lowerBound - begin)..<(b.upperBound - begin), with: left)
            bytes.replaceSubrange((a.lowerBound - begin)..<(a.upperBound - begin), with: right)
            let text = String(decoding: bytes, as: UTF8.self)
            add(.swapped, ExprSyntax(node), becomes: Self.oneLine(text), alternative(Self.oneLine(text), to: node))
            break
        }
        return .visitChildren
    }

    /// What has no effect of its own, so that it can be another argument as well.
    private static func isPlain(_ expression: ExprSyntax) -> Bool {
        if expression.is(DeclReferenceExprSyntax.self) { return true }
        guard let member = expression.as(MemberAccessExprSyntax.self), let base = member.base else { return false }
        return isPlain(base)
    }

    private static func isCheck(_ callee: String) -> Bool {
        ["precondition", "preconditionFailure", "assert", "assertionFailure", "fatalError"].contains(callee)
    }

    // MARK: Statements

    override func visit(_ node: CodeBlockItemSyntax) -> SyntaxVisitorContinueKind {
        if canBeLeftOut(node) {
            add(
                .omitted, Syntax(node.item), becomes: "left out",
                Site.Edit(range: Self.range(node.item), opening: "if mutantKept(#) { ", closing: " }"))
        }
        return .visitChildren
    }

    private func canBeLeftOut(_ item: CodeBlockItemSyntax) -> Bool {
        if isValue(item) { return false }
        if item.item.is(ReturnStmtSyntax.self) || item.item.is(ThrowStmtSyntax.self)
            || item.item.is(ContinueStmtSyntax.self)
        {
            return endsOptionalBranch(item)
        }
        var expression = item.item.as(ExprSyntax.self) ?? item.item.as(ExpressionStmtSyntax.self)?.expression
        if let attempt = expression?.as(TryExprSyntax.self) { expression = attempt.expression }
        guard let expression else { return false }
        if let call = expression.as(FunctionCallExprSyntax.self) {
            let callee = call.calledExpression.trimmedDescription
            return !Self.isCheck(callee) && callee != "self.init" && callee != "super.init"
        }
        if expression.as(OptionalChainingExprSyntax.self) != nil { return true }
        guard let infix = expression.as(InfixOperatorExprSyntax.self) else { return false }
        if infix.operator.is(AssignmentExprSyntax.self) { return !isInitialization(infix.leftOperand, at: item) }
        return Self.name(of: infix)?.hasSuffix("=") == true
    }

    /// An early exit of an `if` without `else`, with something behind it.
    private func endsOptionalBranch(_ item: CodeBlockItemSyntax) -> Bool {
        guard let list = item.parent?.as(CodeBlockItemListSyntax.self), list.last?.id == item.id,
            let branch = list.parent?.parent?.as(IfExprSyntax.self), branch.elseBody == nil,
            let statement = branch.parent?.is(ExpressionStmtSyntax.self) == true
                ? branch.parent?.parent : branch.parent,
            let around = statement.as(CodeBlockItemSyntax.self),
            let items = around.parent?.as(CodeBlockItemListSyntax.self)
        else { return false }
        return items.last?.id != around.id
    }

    /// Whether it is the value of what it is the only statement of.
    private func isValue(_ item: CodeBlockItemSyntax) -> Bool {
        guard let list = item.parent?.as(CodeBlockItemListSyntax.self), list.count == 1, let around = list.parent else {
            return false
        }
        if around.is(ClosureExprSyntax.self) { return true }
        if around.is(AccessorBlockSyntax.self) { return true }
        if let body = around.as(CodeBlockSyntax.self) {
            if let function = body.parent?.as(FunctionDeclSyntax.self) { return function.signature.returnClause != nil }
            if let accessor = body.parent?.as(AccessorDeclSyntax.self) {
                return accessor.accessorSpecifier.tokenKind == .keyword(.get)
            }
            if let branch = body.parent?.as(IfExprSyntax.self) { return isValue(Syntax(branch)) }
            return false
        }
        if let branch = around.as(SwitchCaseSyntax.self), let whole = branch.parent?.parent {
            return isValue(Syntax(whole))
        }
        return false
    }

    private func isValue(_ branching: Syntax) -> Bool {
        guard var parent = branching.parent else { return false }
        if parent.is(ExpressionStmtSyntax.self), let next = parent.parent { parent = next }
        if let item = parent.as(CodeBlockItemSyntax.self) { return isValue(item) }
        // else if
        if parent.is(IfExprSyntax.self) { return isValue(parent) }
        return true
    }

    /// Whether something gets its first value.
    private func isInitialization(_ target: ExprSyntax, at item: CodeBlockItemSyntax) -> Bool {
        if target.is(TupleExprSyntax.self) { return true }
        var name: String?
        if let reference = target.as(DeclReferenceExprSyntax.self) { name = reference.baseName.text }
        if let member = target.as(MemberAccessExprSyntax.self), member.base?.trimmedDescription == "self" {
            name = member.declName.baseName.text
        }
        guard let name else { return false }
        var node = Syntax(item)
        while let parent = node.parent {
            if parent.is(InitializerDeclSyntax.self) { return true }
            if let list = parent.as(CodeBlockItemListSyntax.self) {
                let isDeclared = list.contains { statement in
                    guard let variable = statement.item.as(VariableDeclSyntax.self) else { return false }
                    return variable.bindings.contains {
                        $0.pattern.trimmedDescription == name && $0.initializer == nil
                    }
                }
                if isDeclared { return true }
            }
            if parent.is(FunctionDeclSyntax.self) { return false }
            node = parent
        }
        return false
    }

    // MARK: Text

    private func call(_ function: String, around node: some SyntaxProtocol) -> Site.Edit {
        Site.Edit(range: Self.range(node), opening: "\(function)(#, ", closing: ")")
    }

    private func alternative(_ text: String, to node: some SyntaxProtocol) -> Site.Edit {
        Site.Edit(range: Self.range(node), opening: "(isMutant(#) ? \(text) : ", closing: ")")
    }

    private func add(_ kind: Site.Kind, _ node: some SyntaxProtocol, becomes: String, _ edit: Site.Edit) {
        let text = Self.text(node)
        // An alternative is written on one line.
        guard !edit.opening.contains("\n"), !edit.opening.contains("//") else { return }
        var key = Site.Key(
            file: file, function: names.map(\.name).joined(separator: "."), kind: kind, text: text, ordinal: 0)
        ordinals[key, default: 0] += 1
        key.ordinal = ordinals[key, default: 1]
        found.append(
            Site(
                key: key, line: converter.location(for: node.positionAfterSkippingLeadingTrivia).line, becomes: becomes,
                edit: edit, functionLines: names.last?.lines ?? 0...0))
    }

    private func lines(_ node: some SyntaxProtocol) -> ClosedRange<Int> {
        let begin = converter.location(for: node.positionAfterSkippingLeadingTrivia).line
        return begin...max(begin, converter.location(for: node.endPositionBeforeTrailingTrivia).line)
    }

    private static func name(of infix: InfixOperatorExprSyntax) -> String? {
        infix.operator.as(BinaryOperatorExprSyntax.self)?.operator.text
    }

    private static func withoutParentheses(_ expression: ExprSyntax) -> ExprSyntax {
        guard let tuple = expression.as(TupleExprSyntax.self), tuple.elements.count == 1,
            let only = tuple.elements.first, only.label == nil
        else { return expression }
        return withoutParentheses(only.expression)
    }

    private static func range(_ node: some SyntaxProtocol) -> Range<Int> {
        node.positionAfterSkippingLeadingTrivia.utf8Offset..<node.endPositionBeforeTrailingTrivia.utf8Offset
    }

    private static func text(_ node: some SyntaxProtocol) -> String { oneLine(node.trimmedDescription) }

    private static func oneLine(_ text: String) -> String {
        text.split(whereSeparator: { $0 == " " || $0.isNewline }).joined(separator: " ")
    }

    private static func value(_ literal: String) -> Int? {
        let digits = literal.replacing("_", with: "")
        for (prefix, radix) in [("0x", 16), ("0b", 2), ("0o", 8)] where digits.hasPrefix(prefix) {
            return Int(digits.dropFirst(2), radix: radix)
        }
        return Int(digits)
    }
}
