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
    begin[task] = std::max(outside(), task_start_[task]);
    const Time at = begin[task] + task_delay_[task];
    if (at <= outside()) {
        run_task(task);
    } else {
        hosts_.push({at, event(Happens::task, task)});
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
        moves_[slot] = {task, 0, task_bytes_[task], step, 0, 0};
        segment(slot);
    }
}

// One piece of a message inside a host: it goes over its links in order, beginning on the next while it still leaves the
// one before. A link is taken when the piece comes to it: first come, first served, whoever was posted first.
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
    const i64 at = path_start_[path] + move.hop, end = path_start_[path + 1];
    if (at < end) {
        const auto bus = static_cast<std::size_t>(path_bus_[static_cast<std::size_t>(at)]);
        const Time start = std::max(outside(), bus_busy_[bus]);
        bus_busy_[bus] = start + static_cast<Time>(static_cast<double>(size) * bus_cost_[bus]);
        if (move.hop == 0) move.free = bus_busy_[bus];
        move.last = std::max(move.last, bus_busy_[bus]);
        if (at + 1 < end) {
            ++move.hop;
            moves_[slot] = move;
            hosts_.push({start, event(Happens::bus, slot)});
            return;
        }
    }
    move.left -= size;
    move.hop = 0;
    moves_[slot] = move;
    hosts_.push({std::max(outside(), move.left == 0 ? move.last : move.free), event(Happens::bus, slot)});
}

void Core::finish_task(u32 task) {
    end[task] = outside();
    ++count.tasks_done;
    for (u64 i = after_start_[task]; i < after_start_[task + 1]; ++i) {
        if (--task_waits_[after_[i]] == 0) ready_.push_back(after_[i]);
    }
}

}  // namespace syncline::packet
