#include "block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

#include "happens_before.h"

namespace octavo::emulation {
namespace {

constexpr size_t kCopyBytes = 16;
constexpr unsigned char kNaNByte = 0xff; // a float, half or bfloat16 of these bytes is NaN

std::string text(const dim3 &d) {
    return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

bool same_site(const char *a, const char *b) { return a == b || std::strcmp(a, b) == 0; }

} // namespace

void AsyncCopies::carry_out(const Copy &copy) {
    if (copy.source_bytes < kCopyBytes) std::memset(copy.destination, 0, kCopyBytes);
    if (copy.source_bytes > 0) std::memcpy(copy.destination, copy.source, copy.source_bytes);
}

void AsyncCopies::start(void *destination, const void *source, size_t source_bytes, bool at_once) {
    const Copy copy = {destination, source, source_bytes, num_committed_};
    if (at_once)
        carry_out(copy);
    else
        copies_.push_back(copy);
}

void AsyncCopies::wait(int num_pending) {
    const auto is_due = [&](const Copy &copy) { return copy.group < num_committed_ - num_pending; };
    for (const Copy &copy : copies_)
        if (is_due(copy)) carry_out(copy);
    copies_.erase(std::remove_if(copies_.begin(), copies_.end(), is_due), copies_.end());
}

Block::Block(const Place &place, size_t shared_bytes, const std::function<void()> &kernel, Order order,
             std::mt19937_64 &random)
    : kernel_(kernel), order_(order), random_(random),
      threads_(size_t{place.block_dim.x} * place.block_dim.y * place.block_dim.z),
      ready_((threads_.size() + kWarpSize - 1) / kWarpSize), priority_(ready_.size()),
      dynamic_shared_(allocate(shared_bytes)) {
    for (size_t i = 0; i < threads_.size(); ++i) {
        const dim3 &size = place.block_dim;
        threads_[i].place = place;
        threads_[i].place.thread = dim3(i % size.x, i / size.x % size.y, i / size.x / size.y);
        ready_[i / kWarpSize] |= 1u << i % kWarpSize;
    }
    std::iota(priority_.begin(), priority_.end(), 0);
    if (order == Order::kLastInFirstOut) std::reverse(priority_.begin(), priority_.end());
    draw_priorities();
}

Block::Memory Block::allocate(size_t bytes) {
    const auto release = [](unsigned char *memory) { std::free(memory); };
    if (bytes == 0) return {nullptr, release};
    void *memory = nullptr;
    if (posix_memalign(&memory, 16, bytes) != 0) throw std::bad_alloc();
    std::memset(memory, kNaNByte, bytes);
    return {static_cast<unsigned char *>(memory), release};
}

void Block::run(const std::vector<std::unique_ptr<Fiber>> &fibers) {
    for (size_t i = 0; i < threads_.size(); ++i) {
        threads_[i].fiber = fibers[i].get();
        threads_[i].fiber->prepare(&Block::enter, this);
    }
    release(this);
    while (pick()) {
        current().fiber->resume();
        if (error_) std::rethrow_exception(error_);
    }
    acquire(&ended_);
    report_deadlock();
}

void Block::enter(void *self) {
    Block &block = *static_cast<Block *>(self);
    acquire(self);
    try {
        block.kernel_();
    } catch (...) {
        block.error_ = std::current_exception();
    }
    release(&block.ended_);
    block.current().state = Thread::State::kLeft;
    block.ready_[block.current_ / kWarpSize] &= ~(1u << block.current_ % kWarpSize);
}

// Chooses the thread to run next; false if none can.
bool Block::pick() {
    for (const size_t warp : priority_) {
        const uint32_t lanes = ready_[warp];
        if (lanes == 0) continue;
        int lane = __builtin_ctz(lanes);
        if (order_ == Order::kLastInFirstOut) lane = 31 - __builtin_clz(lanes);
        if (order_ == Order::kRandomWarps && lanes >> rotation_ != 0)
            lane = rotation_ + __builtin_ctz(lanes >> rotation_);
        current_ = warp * kWarpSize + lane;
        return true;
    }
    return false;
}

void Block::wait(Thread::State state, const char *site) {
    current().state = state;
    current().site = site;
    ready_[current_ / kWarpSize] &= ~(1u << current_ % kWarpSize);
}

void Block::sync(const char *site) {
    Thread &self = current();
    wait(Thread::State::kAtBarrier, site);
    const char *barrier = &barriers_[num_barriers_ % 2]; // a thread may reach the next before another has left this one
    release(&arrivals_);
    if (++num_at_barrier_ == threads_.size()) {
        acquire(&arrivals_);
        release(barrier);
        release_barrier();
    }
    self.fiber->suspend();
    acquire(barrier);
}

void Block::release_barrier() {
    num_at_barrier_ = 0;
    ++num_barriers_;
    for (Thread &thread : threads_)
        if (!same_site(thread.site, threads_[0].site))
            fail(thread.site, std::string("divergent barrier: others wait at ") + threads_[0].site);
    for (size_t i = 0; i < threads_.size(); ++i) {
        threads_[i].state = Thread::State::kReady;
        ready_[i / kWarpSize] |= 1u << i % kWarpSize;
    }
    draw_priorities();
}

void Block::draw_priorities() {
    if (order_ != Order::kRandomWarps) return;
    std::shuffle(priority_.begin(), priority_.end(), random_);
    rotation_ = static_cast<int>(random_() % kWarpSize);
}

const LaneValue *Block::exchange(const char *site, uint32_t mask, const LaneValue &mine) {
    Thread &self = current();
    const size_t first = current_ / kWarpSize * kWarpSize;
    if ((mask >> (current_ - first) & 1) == 0) fail(site, "a lane takes part that its mask does not name");
    self.shown = mine;
    self.mask = mask;
    wait(Thread::State::kInExchange, site);
    release(&self);
    uint32_t arrived = 0;
    for (size_t lane = 0; lane < kWarpSize && first + lane < threads_.size(); ++lane) {
        const Thread &other = threads_[first + lane];
        const bool together =
            other.state == Thread::State::kInExchange && other.mask == mask && same_site(other.site, site);
        arrived |= uint32_t{together} << lane;
    }
    if ((arrived & mask) == mask) release_exchange(first, mask);
    self.fiber->suspend();
    acquire(self.seen.get());
    return self.seen.get();
}

void Block::release_exchange(uint32_t first_of_warp, uint32_t mask) {
    const std::shared_ptr<LaneValue[]> shown(new LaneValue[kWarpSize]);
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        const int lane = __builtin_ctz(lanes);
        shown[lane] = threads_[first_of_warp + lane].shown;
        acquire(&threads_[first_of_warp + lane]);
    }
    release(shown.get());
    for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
        Thread &thread = threads_[first_of_warp + __builtin_ctz(lanes)];
        thread.seen = shown;
        thread.state = Thread::State::kReady;
    }
    ready_[first_of_warp / kWarpSize] |= mask;
}

void Block::start_copy(const char *site, void *destination, const void *source, size_t source_bytes) {
    for (const void *address : {static_cast<const void *>(destination), source})
        if (reinterpret_cast<uintptr_t>(address) % kCopyBytes != 0) fail(site, "a copy of 16 bytes is not aligned");
    const bool at_once = order_ == Order::kRandomWarps ? random_() % 2 == 0 : order_ == Order::kLastInFirstOut;
    current().copies.start(destination, source, source_bytes, at_once);
}

void *Block::shared_array(const char *site, size_t bytes) {
    for (const SharedArray &array : arrays_)
        if (array.bytes == bytes && same_site(array.site, site)) {
            acquire(array.memory.get());
            return array.memory.get();
        }
    arrays_.push_back({site, bytes, allocate(bytes)});
    release(arrays_.back().memory.get());
    return arrays_.back().memory.get();
}

void Block::report_deadlock() {
    const auto waits = [](const Thread &thread) { return thread.state != Thread::State::kLeft; };
    const auto first = std::find_if(threads_.begin(), threads_.end(), waits);
    if (first == threads_.end()) return;
    current_ = first - threads_.begin();
    const auto num_left = std::count_if(threads_.begin(), threads_.end(), [&](const Thread &t) { return !waits(t); });
    const char *what = first->state == Thread::State::kAtBarrier ? "divergent barrier: " : "absent lanes: ";
    std::string others = std::to_string(num_left) + " threads have left the kernel";
    for (const Thread &thread : threads_)
        if (waits(thread) && !same_site(thread.site, first->site))
            others = std::string("others wait at ") + thread.site;
    fail(first->site, what + others);
}

std::string Block::where() const {
    const Place &place = threads_[current_].place;
    return "block " + text(place.block) + ", thread " + text(place.thread);
}

void Block::fail(const char *site, const std::string &what) {
    throw Fault(std::string(site) + ": " + what + " [" + where() + "]");
}

} // namespace octavo::emulation
