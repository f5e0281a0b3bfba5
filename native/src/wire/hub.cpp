// Messages: who has asked for which, what is under way, what has been received.
#include "hub.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "worker.hpp"

namespace syncline::wire {
namespace {

constexpr std::size_t kMostEvents = 1000;
constexpr std::size_t kReadyFrames = 12;  // for each peer: more are not made ahead

}  // namespace

void put(const Part (&parts)[2], std::uint32_t offset, const std::uint8_t* from, std::size_t size) {
    std::size_t at = offset;
    for (const Part& part : parts) {
        if (at < part.size && size > 0) {
            const std::size_t some = std::min(size, part.size - at);
            std::memcpy(part.data + at, from, some);
            from += some;
            size -= some;
            at += some;
        }
        at -= std::min(at, part.size);
    }
}

void Rooms::expect(std::size_t size, int count) {
    free_[size].expected += count;
    trim(size);
}

Rooms::Room Rooms::take(std::size_t size) {
    std::vector<Room>& rooms = free_[size].rooms;
    if (rooms.empty()) return std::make_unique_for_overwrite<std::uint8_t[]>(size);
    Room room = std::move(rooms.back());
    rooms.pop_back();
    return room;
}

void Rooms::give(Room room, std::size_t size) {
    if (!room) return;
    free_[size].rooms.push_back(std::move(room));
    trim(size);
}

std::size_t Rooms::num_free() const {
    std::size_t count = 0;
    for (const auto& [size, kept] : free_) count += kept.rooms.size();
    return count;
}

void Rooms::trim(std::size_t size) {
    Free& kept = free_[size];
    while (static_cast<int>(kept.rooms.size()) > std::max(0, kept.expected)) kept.rooms.pop_back();
    if (kept.expected <= 0 && kept.rooms.empty()) free_.erase(size);
}

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Hub::tell(int peer, int rail, std::string what) {
    if (events.size() < kMostEvents) events.push_back({now_s(), peer, rail, std::move(what)});
}

void Hub::open(int peer_rank, std::uint32_t tag, Listener* listener, std::uint32_t key, Part prefix) {
    Peer& peer = peers[static_cast<std::size_t>(peer_rank)];
    const std::pair id{tag, peer.in_number[tag]++};
    InMessage& message = peer.inbox[id];
    message.listener = listener;
    message.key = key;
    message.part[0] = prefix;
    if (message.total > 0 && message.num_committing == 0) place(peer, message);
    deliver(peer, id);
}

bool Hub::unopen(int peer_rank, std::uint32_t tag, Listener* listener) {
    Peer& peer = peers[static_cast<std::size_t>(peer_rank)];
    const std::uint32_t last = peer.in_number[tag] - 1;
    const auto found = peer.inbox.find({tag, last});
    if (found == peer.inbox.end() || found->second.listener != listener) return true;
    InMessage& message = found->second;
    std::vector<Claim*> claims;
    for (const auto& [sequence, claim] : peer.receiving) {
        if (claim->message == &message) claims.push_back(claim);
    }
    for (Claim* claim : claims) revoke(*claim);
    --peer.in_number[tag];
    if (message.total == 0) {
        peer.inbox.erase(found);
        return true;
    }
    if (message.is_placed && !message.is_refused) {
        message.parked.resize(message.total);
        std::uint8_t* at = message.parked.data();
        std::size_t left = message.total;
        for (const Part& part : message.part) {
            const std::size_t some = std::min(left, part.size);
            std::copy_n(part.data, some, at);  // a part of nothing has no address
            at += some;
            left -= some;
        }
    }
    message.listener = nullptr;
    message.is_placed = message.is_refused = message.is_told = false;
    message.part[0] = message.part[1] = {};
    return true;
}

void Hub::put_back(int peer_rank, std::uint32_t tag, const Part (&parts)[2], std::uint32_t total) {
    Peer& peer = peers[static_cast<std::size_t>(peer_rank)];
    InMessage& message = peer.inbox[{tag, --peer.in_number[tag]}];
    message.total = message.received = total;
    message.parked.resize(total);
    std::uint8_t* at = message.parked.data();
    std::size_t left = total;
    for (const Part& part : parts) {
        const std::size_t some = std::min(left, part.size);
        std::copy_n(part.data, some, at);  // a part of nothing has no address
        at += some;
        left -= some;
    }
}

// Ask where the bytes go, now that their number is known, and bring those that were parked.
void Hub::place(Peer& peer, InMessage& message) {
    if (message.is_placed || message.listener == nullptr) return;
    message.part[1] = message.listener->place(message.key, peer.rank, message.total);
    message.is_placed = true;
    message.is_refused = message.total > message.part[0].size + message.part[1].size;
    if (message.is_refused || message.parked.empty()) return;  // what does not fit is kept for who asks next
    put(message.part, 0, message.parked.data(), message.parked.size());
    message.parked = {};
}

void Hub::deliver(Peer& peer, std::pair<std::uint32_t, std::uint32_t> id) {
    const auto found = peer.inbox.find(id);
    if (found == peer.inbox.end()) return;
    InMessage& message = found->second;
    if (message.listener == nullptr || message.num_committing > 0 || message.total == 0) return;
    place(peer, message);
    if (message.received < message.total || message.is_told) return;
    Listener* listener = message.listener;
    const std::uint32_t key = message.key, total = message.total;
    if (message.is_refused) {
        message.is_told = true;
    } else {
        peer.inbox.erase(found);
    }
    listener->arrived(key, peer.rank, total);
    changed.notify_all();
}

OutPointer Hub::send(int peer_rank, std::uint32_t tag, int priority, Listener* listener, std::uint32_t key, Part prefix,
                     Part payload, FrameSums sums) {
    Peer& peer = peers[static_cast<std::size_t>(peer_rank)];
    auto message = std::make_shared<OutMessage>();
    *message = {peer_rank, tag, peer.out_number[tag]++, key, priority, listener, {prefix, payload}, std::move(sums)};
    message->total = static_cast<std::uint32_t>(prefix.size + payload.size);
    if (peer.ready.empty()) {
        const std::uint64_t least = least_gone();
        if (least != ~std::uint64_t{0}) peer.gone = std::max(peer.gone, least);
    }
    for (std::uint32_t at = 0, length = 0; at < message->total; at += length) {
        const std::uint64_t sequence = peer.next_sequence++;
        length = frame_length(message->total - at, options.frame_bytes);
        await_line(peer, sequence, peer.flight[sequence] = {message, at, length});
        ++message->num_unacknowledged;
    }
    wake_lines(peer);
    return message;
}

void Hub::release(const OutPointer& message) {
    if (!message || message->is_over || message->num_unacknowledged == 0) return;
    Peer& peer = peers[static_cast<std::size_t>(message->peer)];
    for (auto it = peer.flight.begin(); it != peer.flight.end();) {
        if (it->second.message != message) {
            ++it;
            continue;
        }
        leave_line(peer, it->second);
        it = peer.flight.erase(it);
    }
    message->num_unacknowledged = 0;
    maybe_over(message);
}

void Hub::forget(const OutPointer& message) {
    if (!message) return;
    message->listener = nullptr;
    release(message);
}

void Hub::maybe_over(const OutPointer& message) {
    if (message->is_over || message->num_unacknowledged > 0 || message->num_being_written > 0) return;
    message->is_over = true;
    if (message->listener != nullptr) message->listener->sent(message->key, message->peer);
    changed.notify_all();
}

Outcome Hub::trouble_with(int peer) const {
    if (!broken.empty()) return {Status::closed, -1, -1, broken};
    const std::string& lost = peers[static_cast<std::size_t>(peer)].lost;
    if (!lost.empty()) return {Status::lost, peer, -1, lost};
    return {};
}

bool Hub::is_quiet() const {
    for (const Peer& peer : peers) {
        if (peer.lost.empty() && !peer.flight.empty()) return false;
    }
    for (const auto& line : lines) {
        if (line->is_up && !line->acks.empty()) return false;
    }
    return true;
}

void Hub::add_task(int priority, Kind kind, std::function<void()> run) {
    (kind == Kind::due ? due_ : ahead_).emplace(-priority, num_tasks_);
    tasks_[num_tasks_++] = std::move(run);
    for (const auto& worker : workers) {
        if (worker->is_idle() && worker->wake()) return;
    }
}

// Whether every peer that can be reached has enough to be sent. Of what is ready some may have been received by now.
bool Hub::is_enough_ready() const {
    bool is_any = false;
    for (const Peer& peer : peers) {
        if (peer.rank == options.rank || !peer.lost.empty()) continue;
        if (std::min(peer.ready.size(), peer.flight.size()) < kReadyFrames) return false;
        is_any = true;
    }
    return is_any;
}

Hub::TaskOrder* Hub::next_tasks() {
    if (ahead_.empty()) return due_.empty() ? nullptr : &due_;
    if (!due_.empty() && std::get<0>(due_.top()) <= std::get<0>(ahead_.top())) return &due_;
    if (!is_enough_ready()) return &ahead_;
    return due_.empty() ? nullptr : &due_;
}

std::function<void()> Hub::pop_task() {
    const std::lock_guard hold(mutex);
    TaskOrder* const order = next_tasks();
    if (order == nullptr) return {};
    const auto found = tasks_.find(std::get<1>(order->top()));
    auto run = std::move(found->second);
    tasks_.erase(found);
    order->pop();
    return run;
}

bool Hub::has_tasks() {
    const std::lock_guard hold(mutex);
    return next_tasks() != nullptr;
}

}  // namespace syncline::wire
