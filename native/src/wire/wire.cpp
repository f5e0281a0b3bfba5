// The face of the transport: messages by tag and peer, lanes, reports.
#include "syncline/wire.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>
#include <thread>

#include "hub.hpp"
#include "lane.hpp"
#include "worker.hpp"

namespace syncline::wire {
namespace {

using Steady = std::chrono::steady_clock;

// Wait with the lock until `done` says so; it may leave an outcome. Late when it never does.
template <typename Done>
Outcome wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& hold, double timeout_s, Done done) {
    const auto deadline = Steady::now() + std::chrono::duration_cast<Steady::duration>(
                                              std::chrono::duration<double>(std::min(timeout_s, 1e6)));
    Outcome outcome;
    if (!changed.wait_until(hold, deadline, [&] { return done(outcome); })) outcome.status = Status::late;
    return outcome;
}

}  // namespace

// Messages that are asked for one by one.
class Mailbox final : public Listener {
   public:
    using Key = std::pair<std::uint32_t, int>;
    std::map<Key, Part> rooms;
    std::map<Key, std::uint32_t> here;
    std::map<std::uint32_t, std::vector<OutPointer>> going;

    Part place(std::uint32_t key, int peer, std::uint32_t) override { return rooms[{key, peer}]; }
    void arrived(std::uint32_t key, int peer, std::uint32_t total) override { here[{key, peer}] = total; }
    void sent(std::uint32_t, int) override {}
};

Hub::Hub(Options chosen) : options(std::move(chosen)), peers(static_cast<std::size_t>(std::max(1, options.size))) {
    const bool fits = options.size >= 1 && options.size <= 65535 && options.rank >= 0 && options.rank < options.size;
    if (!fits) throw std::invalid_argument("rank and size do not fit each other");
    if (options.rails.empty()) throw std::invalid_argument("a wire needs at least one rail");
    if (options.secret.size() < 16) throw std::invalid_argument("a secret has at least 16 bytes");
    if (options.connections < 1 || options.connections > 64 || options.threads < 1 || options.threads > 256) {
        throw std::invalid_argument("connections are 1 to 64, threads 1 to 256");
    }
    if (options.frame_bytes < 1024 || options.frame_bytes > kFrameLimit) {
        throw std::invalid_argument("frames have 1 KiB to 1 MiB");
    }
    for (int rank = 0; rank < options.size; ++rank) {
        Peer& peer = peers[static_cast<std::size_t>(rank)];
        peer.rank = rank;
        for (int k = 0; rank != options.rank && k < static_cast<int>(options.rails.size()) * options.connections; ++k) {
            auto line = std::make_unique<Line>();
            line->peer = rank;
            line->rail = k / options.connections;
            line->index = k % options.connections;
            line->id = static_cast<int>(lines.size());
            line->reader = (2 * line->id) % options.threads;
            line->worker = (2 * line->id + 1) % options.threads;
            peer.lines.push_back(line->id);
            lines.push_back(std::move(line));
        }
    }
    std::vector<Socket> listeners;
    for (const Rail& rail : options.rails) listeners.push_back(listen_on(rail));
    for (int k = 0; k < options.threads; ++k) {
        workers.push_back(std::make_unique<Worker>(*this, k, k == 0 ? std::move(listeners) : std::vector<Socket>{}));
    }
}

Hub::~Hub() { stop(); }

void Hub::wake_waiting() {
    changed.notify_all();
    for (const auto& [tag, lane] : lanes) lane->wake_all();
}

void Hub::evict(std::unique_lock<std::mutex>& hold, std::uint32_t lane_tag) {
    for (auto found = lanes.find(lane_tag); found != lanes.end(); found = lanes.find(lane_tag)) {
        if (found->second->hand_over()) {
            lanes.erase(found);
            return;
        }
        if (is_stopped || !broken.empty()) return;
        hold.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        hold.lock();
    }
}

void Hub::stop() {
    is_stopping = true;
    for (const auto& worker : workers) worker->join();
    is_stopped = true;
}

Lane::Lane(std::shared_ptr<Hub> hub, LaneSpec spec)
    : hub_(std::move(hub)), state_(std::make_unique<LaneState>(*hub_, std::move(spec))) {
    std::unique_lock hold(hub_->mutex);
    hub_->evict(hold, state_->tag());
    hub_->lanes[state_->tag()] = state_.get();
    state_->expect_rooms(true);
    state_->open_first();
}

Lane::~Lane() {
    const auto until = Steady::now() + std::chrono::seconds(10);
    std::unique_lock hold(hub_->mutex);
    while (!hub_->is_stopped && !state_->leave(Steady::now() < until)) {
        hold.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        hold.lock();
    }
    const auto found = hub_->lanes.find(state_->tag());
    if (found != hub_->lanes.end() && found->second == state_.get()) hub_->lanes.erase(found);
    state_->expect_rooms(false);
}

void Lane::post(Posting posting) {
    const std::lock_guard hold(hub_->mutex);
    if (hub_->lanes[state_->tag()] != state_.get()) throw std::logic_error("a lane was posted after its tag was taken");
    if (state_->is_busy()) throw std::logic_error("a lane was posted while it was busy");
    state_->post(std::move(posting));
}

Outcome Lane::wait_reduced(double timeout_s) {
    std::unique_lock hold(hub_->mutex);
    Outcome found = wait_until(state_->waiting_for(LaneState::Until::reduced), hold, timeout_s, [&](Outcome& outcome) {
        if (state_->is_reduced()) return true;
        outcome = state_->trouble_with_peers();
        return outcome.status != Status::fine;
    });
    if (found.status == Status::late) found.rank = state_->first_late();
    return found.status == Status::fine ? state_->outcome() : found;
}

Outcome Lane::wait_done(double timeout_s) {
    std::unique_lock hold(hub_->mutex);
    Outcome found = wait_until(state_->waiting_for(LaneState::Until::done), hold, timeout_s, [&](Outcome& outcome) {
        if (state_->is_done()) return true;
        if (state_->is_busy()) return false;
        outcome = state_->trouble_with_peers();
        return outcome.status != Status::fine;
    });
    if (found.status == Status::late) found.rank = state_->first_late();
    return found.status == Status::fine ? state_->outcome() : found;
}

void Lane::take_back(const float* values, float* residual) { state_->take_back(values, residual); }

std::vector<WorkSpan> Lane::spans() {
    const std::lock_guard hold(hub_->mutex);
    return state_->take_spans();
}

std::int64_t Lane::sent_bytes() const { return state_->sent_bytes(); }

Wire::Wire(Options options)
    : hub_(std::make_shared<Hub>(std::move(options))), mailbox_(std::make_unique<Mailbox>()) {
    for (const auto& worker : hub_->workers) worker->start();
}

Wire::~Wire() { close(0.0); }

std::vector<std::uint16_t> Wire::ports() const {
    std::vector<std::uint16_t> found;
    for (const Socket& listener : hub_->workers[0]->listeners()) found.push_back(port_of(listener));
    return found;
}

void Wire::connect(int peer, const std::vector<Endpoint>& rails) {
    if (peer < 0 || peer >= hub_->options.size || peer == hub_->options.rank) {
        throw std::invalid_argument("there is no such peer");
    }
    const std::lock_guard hold(hub_->mutex);
    hub_->peers[static_cast<std::size_t>(peer)].endpoints = rails;
    hub_->workers[0]->wake();
}

bool Wire::wait_connected(double timeout_s) {
    std::unique_lock hold(hub_->mutex);
    const Outcome found = wait_until(hub_->changed, hold, timeout_s, [&](Outcome& outcome) {
        for (const Peer& peer : hub_->peers) {
            if (peer.rank == hub_->options.rank) continue;
            outcome = hub_->trouble_with(peer.rank);
            if (outcome.status != Status::fine) return true;
            const bool reached = std::any_of(peer.lines.begin(), peer.lines.end(), [&](int id) {
                return hub_->lines[static_cast<std::size_t>(id)]->is_up;
            });
            if (!reached) return false;
        }
        return true;
    });
    return found.status == Status::fine;
}

void Wire::open(std::uint32_t tag, int peer, std::uint8_t* room, std::size_t size) {
    std::unique_lock hold(hub_->mutex);
    hub_->evict(hold, tag / 2);
    mailbox_->rooms[{tag, peer}] = {room, size};
    hub_->open(peer, tag, mailbox_.get(), tag, {});
}

void Wire::send(std::uint32_t tag, int peer, const std::uint8_t* data, std::size_t size, int priority) {
    if (size == 0 || size > UINT32_MAX) throw std::invalid_argument("a message has 1 byte to 4 GiB");
    const std::lock_guard hold(hub_->mutex);
    const Part part{const_cast<std::uint8_t*>(data), size};
    mailbox_->going[tag].push_back(hub_->send(peer, tag, 2 * priority, mailbox_.get(), tag, part, {}));
}

Outcome Wire::wait(std::uint32_t tag, int peer, double timeout_s) {
    std::unique_lock hold(hub_->mutex);
    const Mailbox::Key key{tag, peer};
    Outcome found = wait_until(hub_->changed, hold, timeout_s, [&](Outcome& outcome) {
        if (mailbox_->here.contains(key)) return true;
        outcome = hub_->trouble_with(peer);
        return outcome.status != Status::fine;
    });
    found.rank = peer;
    if (found.status != Status::fine) return found;
    if (mailbox_->here[key] > mailbox_->rooms[key].size) found.status = Status::disagreed;
    mailbox_->here.erase(key);
    return found;
}

Outcome Wire::finish(std::uint32_t tag, double timeout_s) {
    std::unique_lock hold(hub_->mutex);
    const Outcome found = wait_until(hub_->changed, hold, timeout_s, [&](Outcome& outcome) {
        for (const OutPointer& message : mailbox_->going[tag]) {
            if (message->is_over) continue;
            outcome = hub_->trouble_with(message->peer);
            return outcome.status != Status::fine;
        }
        return true;
    });
    if (found.status == Status::fine) mailbox_->going.erase(tag);
    return found;
}

std::unique_ptr<Lane> Wire::lane(LaneSpec spec) { return std::make_unique<Lane>(hub_, std::move(spec)); }

std::vector<LineReport> Wire::lines() const {
    const std::lock_guard hold(hub_->mutex);
    std::vector<LineReport> all;
    for (const auto& line : hub_->lines) {
        all.push_back({line->peer, line->rail, line->index, line->is_up, line->is_stalled, line->sent_bytes,
                       line->received_bytes, line->resent, line->wrong, line->num_resets, line->pace.rate_Bps()});
    }
    return all;
}

std::vector<Event> Wire::events() {
    const std::lock_guard hold(hub_->mutex);
    return std::exchange(hub_->events, {});
}

std::uint64_t Wire::num_strangers() const {
    const std::lock_guard hold(hub_->mutex);
    return hub_->num_strangers;
}

double Wire::cpu_s() const {
    double sum = 0.0;
    for (const auto& worker : hub_->workers) sum += worker->cpu_s();
    return sum;
}

void Wire::break_off(const std::string& text) {
    const std::lock_guard hold(hub_->mutex);
    if (hub_->broken.empty()) hub_->broken = text.empty() ? "broken off" : text;
    hub_->wake_waiting();
}

void Wire::close(double patience_s) {
    if (hub_->is_stopped) return;
    {
        std::unique_lock hold(hub_->mutex);
        hub_->is_closing = true;
        const auto until = Steady::now() + std::chrono::duration_cast<Steady::duration>(
                                               std::chrono::duration<double>(patience_s));
        while (!hub_->is_quiet() && Steady::now() < until) {
            hub_->changed.wait_for(hold, std::chrono::milliseconds(2));
        }
        for (const auto& line : hub_->lines) {
            line->bye = line->is_up;
            if (line->is_up && !line->is_dirty.exchange(true)) {
                hub_->workers[static_cast<std::size_t>(line->worker)]->wake();
            }
        }
        const auto said = [&] {
            return std::none_of(hub_->lines.begin(), hub_->lines.end(),
                                [](const auto& line) { return line->is_up && line->bye; });
        };
        while (!said() && Steady::now() < until) hub_->changed.wait_for(hold, std::chrono::milliseconds(1));
        if (hub_->broken.empty()) hub_->broken = "the wire is closed";
        hub_->wake_waiting();
    }
    hub_->stop();
}

}  // namespace syncline::wire
