// SPDX-License-Identifier: Apache-2.0
// Reads the ELF header and the symbol table of a cubin within the bounds of its bytes.
#include "compile/cubin.h"

#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/architectures.h"

namespace attnjit {
namespace {

constexpr Elf64_Half kMachineCuda = 190;
/// st_other of a symbol that is a kernel's entry (STO_CUDA_ENTRY).
constexpr unsigned char kOtherEntry = 0x10;
/// From this ABI version on, bits 8 to 15 of e_flags are the SM; before, bits 0 to 7.
constexpr unsigned char kAbiShiftedSm = 8;
constexpr unsigned char kAbiOldest = 2;

Error corrupt(std::string what) {
  return make_error(ErrorCode::kCorrupt, "the image is no cubin: " + std::move(what));
}

/// Bytes with every access checked.
class Bytes {
 public:
  explicit Bytes(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

  template <class T>
  std::optional<T> read(std::uint64_t offset) const {
    if (!holds(offset, sizeof(T))) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  bool holds(std::uint64_t offset, std::uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }
  /// The NUL-terminated text at `offset` of a table; nullopt: it leaves the table.
  std::optional<std::string_view> text(const Elf64_Shdr& table, std::uint64_t offset) const {
    if (!holds(table.sh_offset, table.sh_size) || offset >= table.sh_size) return std::nullopt;
    const char* begin = reinterpret_cast<const char*>(bytes_.data()) + table.sh_offset + offset;
    const void* end = std::memchr(begin, 0, table.sh_size - offset);
    if (end == nullptr) return std::nullopt;
    return std::string_view(begin, static_cast<std::size_t>(static_cast<const char*>(end) - begin));
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

int sm_of(const Elf64_Ehdr& header) {
  const unsigned char abi = header.e_ident[EI_ABIVERSION];
  if (abi == kAbiShiftedSm) return static_cast<int>((header.e_flags >> 8) & 0xff);
  if (abi >= kAbiOldest && abi < kAbiShiftedSm) return static_cast<int>(header.e_flags & 0xff);
  return 0;
}

/// Adds the entries of one symbol table.
Status read_symbols(const Bytes& bytes, const Elf64_Ehdr& header, const Elf64_Shdr& symbols,
                    std::vector<std::string>& entries) {
  if (symbols.sh_entsize != sizeof(Elf64_Sym) || symbols.sh_size % sizeof(Elf64_Sym) != 0 ||
      !bytes.holds(symbols.sh_offset, symbols.sh_size)) {
    return corrupt("the symbol table leaves the file");
  }
  if (symbols.sh_link == 0 || symbols.sh_link >= header.e_shnum) {
    return corrupt("the symbol table has no names");
  }
  const auto names = bytes.read<Elf64_Shdr>(header.e_shoff + symbols.sh_link * sizeof(Elf64_Shdr));
  if (!names || names->sh_type != SHT_STRTAB) return corrupt("the symbol table has no names");
  for (std::uint64_t at = 0; at < symbols.sh_size; at += sizeof(Elf64_Sym)) {
    const auto symbol = bytes.read<Elf64_Sym>(symbols.sh_offset + at);
    if (!symbol) return corrupt("a symbol leaves the file");
    if (ELF64_ST_TYPE(symbol->st_info) != STT_FUNC || (symbol->st_other & kOtherEntry) == 0) {
      continue;
    }
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= header.e_shnum) {
      return corrupt("an entry has no code");
    }
    const auto name = bytes.text(*names, symbol->st_name);
    if (!name || name->empty()) return corrupt("an entry has no name");
    entries.emplace_back(*name);
  }
  return {};
}

}  // namespace

Result<CubinSummary> read_cubin(std::span<const std::uint8_t> span) {
  const Bytes bytes(span);
  const auto header = bytes.read<Elf64_Ehdr>(0);
  if (!header) return corrupt(fmt::format("{} bytes hold no ELF header", span.size()));
  if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return corrupt("no ELF magic");
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
      header->e_machine != kMachineCuda) {
    return corrupt("not 64-bit little-endian code for NVIDIA GPUs");
  }
  if (header->e_shentsize != sizeof(Elf64_Shdr) || header->e_shnum == 0 ||
      !bytes.holds(header->e_shoff, std::uint64_t{header->e_shnum} * sizeof(Elf64_Shdr))) {
    return corrupt("the section table leaves the file");
  }
  CubinSummary summary;
  summary.sm = sm_of(*header);
  bool has_symbols = false;
  for (std::uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto section = bytes.read<Elf64_Shdr>(header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!section) return corrupt("a section header leaves the file");
    if (section->sh_type != SHT_NULL && section->sh_type != SHT_NOBITS &&
        !bytes.holds(section->sh_offset, section->sh_size)) {
      return corrupt("a section leaves the file");
    }
    if (section->sh_type != SHT_SYMTAB) continue;
    has_symbols = true;
    if (Status read = read_symbols(bytes, *header, *section, summary.entries); !read) {
      return std::move(read).error();
    }
  }
  if (!has_symbols) return corrupt("no symbol table");
  std::sort(summary.entries.begin(), summary.entries.end());
  return summary;
}

Status check_cubin(std::span<const std::uint8_t> bytes, Arch arch,
                   std::vector<std::string> entries) {
  const Result<CubinSummary> cubin = read_cubin(bytes);
  if (!cubin) return cubin.error();
  std::sort(entries.begin(), entries.end());
  if (cubin->entries != entries) {
    return make_error(ErrorCode::kCorrupt,
                      fmt::format("the image holds the entries [{}], not exactly [{}]",
                                  fmt::join(cubin->entries, ", "), fmt::join(entries, ", ")),
                      {}, "user code may not define kernels");
  }
  if (cubin->sm != 0 && cubin->sm != traits_of(arch).sm) {
    return make_error(ErrorCode::kCorrupt, fmt::format("the image is for sm_{}, not for {}",
                                                       cubin->sm, to_string(arch)));
  }
  return {};
}

}  // namespace attnjit
