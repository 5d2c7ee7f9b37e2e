// SPDX-License-Identifier: Apache-2.0
// The cubin reader holds against any bytes. Needs no NVRTC: the images are built here.
#include "compile/cubin.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

namespace attnjit {
namespace {

using Bytes = std::vector<std::uint8_t>;

struct Symbol {
  std::string name;
  unsigned char type = STT_FUNC;
  unsigned char other = 0x10;
  std::uint16_t section = 3;
};

/// A cubin of four sections: null, .strtab, .symtab, .text.
Bytes make_cubin(const std::vector<Symbol>& symbols, unsigned char abi = 8,
                 std::uint32_t flags = 0x6005a04) {
  std::string strings(1, '\0');
  std::vector<Elf64_Sym> table(1);
  std::memset(table.data(), 0, sizeof(Elf64_Sym));
  for (const Symbol& symbol : symbols) {
    Elf64_Sym entry{};
    entry.st_name = static_cast<Elf64_Word>(strings.size());
    entry.st_info = ELF64_ST_INFO(STB_GLOBAL, symbol.type);
    entry.st_other = symbol.other;
    entry.st_shndx = symbol.section;
    table.push_back(entry);
    strings += symbol.name;
    strings += '\0';
  }
  const std::size_t names_at = sizeof(Elf64_Ehdr);
  const std::size_t table_at = (names_at + strings.size() + 7) / 8 * 8;
  const std::size_t text_at = table_at + table.size() * sizeof(Elf64_Sym);
  const std::size_t sections_at = text_at + 16;
  Elf64_Shdr sections[4];
  std::memset(sections, 0, sizeof sections);
  sections[1].sh_type = SHT_STRTAB;
  sections[1].sh_offset = names_at;
  sections[1].sh_size = strings.size();
  sections[2].sh_type = SHT_SYMTAB;
  sections[2].sh_offset = table_at;
  sections[2].sh_size = table.size() * sizeof(Elf64_Sym);
  sections[2].sh_link = 1;
  sections[2].sh_entsize = sizeof(Elf64_Sym);
  sections[3].sh_type = SHT_PROGBITS;
  sections[3].sh_offset = text_at;
  sections[3].sh_size = 16;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_ident[EI_OSABI] = 0x41;
  header.e_ident[EI_ABIVERSION] = abi;
  header.e_type = ET_EXEC;
  header.e_machine = 190;
  header.e_flags = flags;
  header.e_shoff = sections_at;
  header.e_ehsize = sizeof header;
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 4;
  header.e_shstrndx = 1;
  Bytes out(sections_at + sizeof sections);
  std::memcpy(out.data(), &header, sizeof header);
  std::memcpy(out.data() + names_at, strings.data(), strings.size());
  std::memcpy(out.data() + table_at, table.data(), table.size() * sizeof(Elf64_Sym));
  std::memcpy(out.data() + sections_at, sections, sizeof sections);
  return out;
}

TEST(Cubin, ListsEntriesAndNothingElse) {
  const auto cubin = read_cubin(
      make_cubin({{"beta"}, {"alpha"}, {"$device", STT_FUNC, 0}, {"data", STT_OBJECT, 0x10}}));
  ASSERT_TRUE(cubin.ok()) << cubin.error().to_string();
  EXPECT_EQ(cubin->entries, (std::vector<std::string>{"alpha", "beta"}));
  EXPECT_EQ(cubin->sm, 90);
}

TEST(Cubin, ReadsTheArchitectureOfEachAbi) {
  EXPECT_EQ(read_cubin(make_cubin({}, 8, 0x6006402))->sm, 100);
  EXPECT_EQ(read_cubin(make_cubin({}, 8, 0x6006702))->sm, 103);
  EXPECT_EQ(read_cubin(make_cubin({}, 7, 0x5a055a))->sm, 90);
  EXPECT_EQ(read_cubin(make_cubin({}, 200, 0x6006402))->sm, 0);
}

TEST(Cubin, RefusesWhatIsNoCubin) {
  EXPECT_FALSE(read_cubin({}).ok());
  const Bytes text(4096, 'x');
  EXPECT_FALSE(read_cubin(text).ok());
  const auto with = [](std::size_t at, std::uint8_t value) {
    Bytes bytes = make_cubin({{"k"}});
    bytes[at] = value;
    return read_cubin(bytes);
  };
  EXPECT_FALSE(with(0, 0).ok());  // magic
  EXPECT_FALSE(with(EI_CLASS, ELFCLASS32).ok());
  EXPECT_FALSE(with(EI_DATA, ELFDATA2MSB).ok());
  EXPECT_FALSE(with(offsetof(Elf64_Ehdr, e_machine), 62).ok());  // x86-64
  EXPECT_FALSE(with(offsetof(Elf64_Ehdr, e_shentsize), 32).ok());
  EXPECT_FALSE(with(offsetof(Elf64_Ehdr, e_shnum), 0).ok());
  EXPECT_FALSE(with(offsetof(Elf64_Ehdr, e_shnum), 255).ok());
  EXPECT_FALSE(with(offsetof(Elf64_Ehdr, e_shoff) + 7, 0xff).ok());  // overflows when added to
}

TEST(Cubin, RefusesEntriesWithoutCodeOrName) {
  EXPECT_FALSE(read_cubin(make_cubin({{"k", STT_FUNC, 0x10, SHN_UNDEF}})).ok());
  EXPECT_FALSE(read_cubin(make_cubin({{"k", STT_FUNC, 0x10, 77}})).ok());
  EXPECT_FALSE(read_cubin(make_cubin({{""}})).ok());
}

TEST(Cubin, EveryTruncationIsRefused) {
  const Bytes whole = make_cubin({{"kernel"}, {"other"}});
  ASSERT_TRUE(read_cubin(whole).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy of its own, so that the address sanitizer sees a read past the end.
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(read_cubin(part).ok()) << size;
  }
}

TEST(Cubin, NoFlippedByteMakesItReadOutside) {
  const Bytes whole = make_cubin({{"kernel"}, {"other"}});
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      Bytes bytes = whole;
      bytes[at] = static_cast<std::uint8_t>(value);
      const auto cubin = read_cubin(bytes);
      if (cubin.ok()) {
        EXPECT_LE(cubin->entries.size(), 2u);
      }
    }
  }
}

TEST(Cubin, RandomDamageNeverCrashes) {
  std::mt19937 random(7);
  const Bytes whole = make_cubin({{"kernel"}, {"other"}});
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = whole;
    const int flips = 1 + static_cast<int>(random() % 8);
    for (int flip = 0; flip < flips; ++flip) {
      bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
    }
    bytes.resize(random() % 4 != 0 ? bytes.size() : random() % (bytes.size() + 1));
    static_cast<void>(read_cubin(bytes).ok());
  }
}

}  // namespace
}  // namespace attnjit
