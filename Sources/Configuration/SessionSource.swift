import SessionCore

// The sessions that the files of sessions.d define. NAME.toml is the session NAME. NAME@.toml is a template, as in
// systemd: it is not a session itself, but each of its `instances` is one, and so is each file NAME@INSTANCE.toml,
// which usually is a symbolic link to the template. In the values of both, %i stands for the instance.

/// The file that a session is read from.
struct SessionSource {
    let name: SessionName
    let path: String
    /// The parsed file of a template, which all of its instances share.
    var template: ConfigurationValue?

    /// Returns the parsed file, with the name of the instance filled in.
    func content() throws(ConfigurationErrors) -> ConfigurationValue {
        let content = if let template { template } else { try Self.parse(path) }
        guard let instance = name.instance else { return content }
        return content.without("instances").replacing("%i", with: instance)
    }

    /// The sessions and templates in a folder.
    struct Listing {
        var sources: [SessionSource] = []
        /// Templates whose instances cannot be read, or not all of them.
        var brokenTemplates: [SessionName: ConfigurationErrors] = [:]
        /// What is wrong with the names of other files.
        var errors: [ConfigurationError] = []
    }

    /// - Parameter names: the names of the files in the folder.
    static func list(_ folder: String, _ names: [String]) -> Listing {
        var listing = Listing()
        var ofTemplates: [SessionSource] = []
        for fileName in names {
            let path = "\(folder)/\(fileName)"
            guard let name = session(ofFile: fileName) else {
                let message =
                    "not a session's name: 1 to 63 of a-z, 0-9 and \"-\", the first not \"-\"; an instance is NAME@INSTANCE"
                listing.errors.append(ConfigurationError(file: path, message: message))
                continue
            }
            if name.isTemplate {
                let instances = instances(of: name, path)
                ofTemplates += instances.sources
                listing.brokenTemplates[name] = instances.errors
            } else {
                listing.sources.append(SessionSource(name: name, path: path))
            }
        }
        // An instance's own file takes precedence over the template.
        let own = Set(listing.sources.map(\.name))
        listing.sources += ofTemplates.filter { !own.contains($0.name) }
        return listing
    }

    /// Returns the session or template that a file of this name in `sessions.d` is about; `nil` if there can be none.
    static func session(ofFile name: String) -> SessionName? {
        SessionName(listed: String(name.dropLast(".toml".count)))
    }

    /// Returns the sessions that the template names, possibly none, and why there may be more. A wrong name in the list
    /// does not affect the others.
    private static func instances(
        of template: SessionName, _ path: String
    ) -> (sources: [SessionSource], errors: ConfigurationErrors?) {
        var sources: [SessionSource] = []
        do throws(ConfigurationErrors) {
            let content = try parse(path)
            guard let value = content["instances"] else {
                // The template's errors are reported now: its first instance may be added much later.
                _ = try SessionConfiguration(content.replacing("%i", with: "instance"))
                return ([], nil)
            }
            if case .list(let elements) = value.content {
                for case .text(let instance) in elements.map(\.content) {
                    guard let name = SessionName("\(template)\(instance)") else { continue }
                    sources.append(SessionSource(name: name, path: path, template: content))
                }
            }
            _ = try ConfigurationForm.list(.instance, of: "instances").read(value)
            // More instances may be listed where the file cannot be read.
            let errors = content.syntaxErrors
            return (sources, errors.isEmpty ? nil : ConfigurationErrors(errors))
        } catch {
            return (sources, error)
        }
    }

    private static func parse(_ path: String) throws(ConfigurationErrors) -> ConfigurationValue {
        let file: ConfigurationFile
        do throws(ConfigurationFile.ReadError) {
            file = try ConfigurationFile(path: path)
        } catch {
            throw ConfigurationErrors([error.error])
        }
        return ConfigurationParser.parse(file.text, file: file.path)
    }
}

extension ConfigurationForm<String> {
    /// The name of an instance: what follows the `@` in the name of a session.
    static var instance: Self {
        let expected = "the name of an instance: 1 to 63 of a-z, 0-9 and \"-\", the first not \"-\""
        return text(expected, write: TOML.text) { SessionName("x@\($0)") == nil ? nil : $0 }
    }
}

extension ConfigurationValue {
    /// Returns the value without one key of its outermost table.
    func without(_ name: String) -> ConfigurationValue {
        guard case .table(let members) = content else { return self }
        return with(.table(members.filter { $0.name != name }))
    }

    /// Returns the value with a placeholder replaced in every text.
    func replacing(_ placeholder: String, with text: String) -> ConfigurationValue {
        switch content {
        case .text(let own): with(.text(own.replacing(placeholder, with: text)))
        case .list(let values): with(.list(values.map { $0.replacing(placeholder, with: text) }))
        case .table(let members): with(.table(members.map { $0.replacing(placeholder, with: text) }))
        case .integer, .boolean, .other, .invalid: self
        }
    }

    private func with(_ content: Content) -> ConfigurationValue {
        ConfigurationValue(file: file, name: name, keyPosition: keyPosition, position: position, content: content)
    }
}
