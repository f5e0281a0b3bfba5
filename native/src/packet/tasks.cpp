// Messages wait for each other: what begins when what it waits for is done.
#include <algorithm>

#include "core.hpp"

namespace syncline::packet {

void Core::start_ready() {
    while (!ready_.empty()) {
        const u32 task = ready_.back();
        ready_.pop_back();
        begin_task(task);
    }
}

void Core::begin_task(u32 task) {
    begin[task] = std::max(now, task_start_[task]);
    const Time at = begin[task] + task_delay_[task];
    if (at <= now) {
        run_task(task);
    } else {
        calendar_.push(at, event(Happens::task, task));
    }
}

void Core::run_task(u32 task) {
    if (task_bytes_[task] == 0 || task_over_[task] == -1) {
        finish_task(task);
    } else if (task_over_[task] >= 0) {
        post(task);
    } else {
        u32 slot = free_move_;
        if (slot == kNone) {
            slot = static_cast<u32>(moves_.size());
            moves_.emplace_back();
        } else {
            free_move_ = moves_[slot].task;
        }
        // A few pieces, so that messages of one sender take turns.
        const i64 step = std::max<i64>((task_bytes_[task] + 7) / 8, 65536);
        moves_[slot] = {task, task_bytes_[task], step, 0};
        segment(slot);
    }
}

// One piece of a message inside a host: it goes over its links in order, each taken in turn, beginning on the next
// while it still leaves the one before.
void Core::segment(u32 slot) {
    Move move = moves_[slot];
    if (move.left == 0) {
        moves_[slot].task = free_move_;
        free_move_ = slot;
        finish_task(move.task);
        return;
    }
    const i64 size = std::min(move.left, move.step);
    const std::size_t path = static_cast<std::size_t>(-2 - task_over_[move.task]);
    Time start = now, last = now, first_free = now;
    for (i64 i = path_start_[path]; i < path_start_[path + 1]; ++i) {
        const auto bus = static_cast<std::size_t>(path_bus_[static_cast<std::size_t>(i)]);
        start = std::max(start, bus_busy_[bus]);
        const Time lasts = static_cast<Time>(static_cast<double>(size) * bus_cost_[bus]);
        bus_busy_[bus] = start + lasts;
        if (i == path_start_[path]) first_free = bus_busy_[bus];
        last = std::max(last, bus_busy_[bus]);
    }
    move.left -= size;
    move.last = std::max(move.last, last);
    moves_[slot] = move;
    calendar_.push(move.left == 0 ? move.last : first_free, event(Happens::bus, slot));
}

void Core::finish_task(u32 task) {
    end[task] = now;
    ++count.tasks_done;
    for (u64 i = after_start_[task]; i < after_start_[task + 1]; ++i) {
        if (--task_waits_[after_[i]] == 0) ready_.push_back(after_[i]);
    }
}

}  // namespace syncline::packet
