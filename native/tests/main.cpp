// Runs the suites that are named, or all; ends with 0 when each checked something and nothing failed.
#include "check.hpp"

int main(int count, char** words) {
    std::map<std::string, void (*)()> chosen;
    for (int i = 1; i < count; ++i) {
        const auto found = check::suites().find(words[i]);
        if (found == check::suites().end()) {
            std::cerr << "there is no suite \"" << words[i] << "\"\n";
            return 2;
        }
        chosen.insert(*found);
    }
    bool ok = !check::suites().empty();
    for (const auto& [name, run] : chosen.empty() ? check::suites() : chosen) {
        check::checks = check::failures = 0;
        run();
        std::cout << name << ": " << check::checks - check::failures << " of " << check::checks << " checks passed\n";
        ok = ok && check::failures == 0 && check::checks > 0;
    }
    return ok ? 0 : 1;
}
